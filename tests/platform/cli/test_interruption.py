"""The message of a stopped command: only remedies that work."""

import os
import signal
import subprocess
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.cli.remedies import stopped
from soulsgraph.runs.progress import Interruption, interruptible, terminable
from soulsgraph_envs.core.errors import Remedy


@pytest.mark.parametrize("command", ["transfer", "retention", "table", "evaluate", "report", ""])
def test_a_command_without_resume_does_not_advise_it(command):
    assert stopped("interrupted", command) == "interrupted; the same command starts again"


@pytest.mark.parametrize("command", ["curriculum", "baseline", "reproduce"])
def test_a_command_with_resume_advises_it(command):
    assert stopped("interrupted", command).endswith("with --resume")


@pytest.mark.parametrize("command", ["train", "adapt", "recovery"])
def test_a_command_that_goes_on_by_itself_says_so(command):
    assert stopped("terminated", command) == "terminated; the same command resumes from the last checkpoint"


def test_a_message_with_a_remedy_gets_no_other():
    found = stopped(Interruption("stopped. ", Remedy("Go on with: ", "do_units", folder="my runs")), "reproduce")
    assert found == "stopped. Go on with: soulsgraph reproduce --resume --out 'my runs'"


def test_a_termination_speaks_for_its_command(monkeypatch, capsys):
    with pytest.raises(Interruption, match=r"^terminated$"), terminable():
        signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr("sys.argv", ["soulsgraph", "retention"])
    monkeypatch.setattr("tyro.extras.SubcommandApp.cli", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        main()
    assert (stop.value.code, capsys.readouterr().err) == (130, "terminated; the same command starts again\n")


def test_a_closed_terminal_stops_in_order_unless_nohup_had_it_ignored():
    with interruptible() as asked:
        signal.raise_signal(signal.SIGHUP)
        assert asked()
    with pytest.raises(Interruption, match="its terminal was closed"), terminable():
        signal.raise_signal(signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as asked:
            signal.raise_signal(signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("command", ["transfer", "retention", "recovery", "curriculum"])
def test_resume_is_advised_exactly_where_it_is_an_option(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["soulsgraph", command, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert ("--resume" in stopped("interrupted", command)) == ("--resume" in capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [["--help"], ["recovery", "--help"], ["zoo", "list"], ["list", "fields"]])
def test_a_reader_that_has_left_ends_it_without_a_word(arguments):
    unread, written = os.pipe()
    os.close(unread)
    command = [sys.executable, "-c", "from soulsgraph.cli import main; main()", *arguments]
    with open(written, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_not_taken_for_an_unread_output(monkeypatch):
    def lose(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("sys.argv", ["soulsgraph", "retention"])
    monkeypatch.setattr("tyro.extras.SubcommandApp.cli", lose)
    with pytest.raises(BrokenPipeError):
        main()


def test_a_closed_output_changes_no_error():
    code = (
        "import sys; sys.stdout = None; sys.argv[1:] = ['skills', '/nowhere']; from soulsgraph.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: /nowhere")
    assert done.stderr.count("\n") == 1
