"""How a command ends that is stopped, or that nobody reads: the remedy that its last line names is one that works."""

import os
import signal
import subprocess
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.cli.front import COMMANDS, load
from soulsgraph.cli.remedies import REPEATED, stopped
from soulsgraph.runs.progress import Interruption, interruptible, terminable
from soulsgraph_envs.core.errors import Remedy


def test_resume_is_advised_exactly_where_it_is_an_option():
    lines = {name: function for name in COMMANDS for function, actions in [load(name)] if not actions}
    lines |= {f"{name} {action}": call for name in COMMANDS for action, call in load(name)[1].items()}
    resumed = {name for name, function in lines.items() if "resume" in function.__annotations__}
    assert resumed == {name for name in lines if "--resume" in stopped("interrupted", name)} != set()
    again = stopped("interrupted", "transfer")
    assert all(stopped("interrupted", name) != again for name in (*REPEATED, "data", "clone"))


def test_a_message_with_a_remedy_gets_no_other():
    found = stopped(Interruption("stopped. ", Remedy("Go on with: ", "do_units", folder="my runs")), "reproduce")
    assert found == "stopped. Go on with: soulsgraph reproduce --resume --out 'my runs'"


def test_a_closed_terminal_stops_in_order_unless_nohup_had_it_ignored():
    with interruptible() as asked:
        signal.raise_signal(signal.SIGHUP)
        assert asked()
    with pytest.raises(Interruption), terminable():
        signal.raise_signal(signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as asked:
            signal.raise_signal(signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("arguments", [["--help"], ["zoo", "list"]])
def test_a_reader_that_has_left_ends_it_without_a_word(arguments):
    unread, written = os.pipe()
    os.close(unread)
    command = [sys.executable, "-m", "soulsgraph", *arguments]
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


def test_an_output_that_is_closed_from_the_start_changes_no_error(refuse, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert "/nowhere" in refuse("skills", "/nowhere")
    sys.stdout.close()
