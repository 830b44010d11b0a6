"""How a command ends that is stopped, or that nobody reads: the remedy that its last line names is one that works."""

import os
import signal
import subprocess
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.cli.output import command_line
from soulsgraph.runs.progress import Interruption, interruptible, terminable


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


def test_a_reader_that_has_left_ends_it_without_a_word():
    unread, written = os.pipe()
    os.close(unread)
    command = [sys.executable, "-m", "soulsgraph", "zoo"]
    with open(written, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_not_taken_for_an_unread_output(monkeypatch):
    def lose(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("sys.argv", ["soulsgraph", "zoo"])
    monkeypatch.setattr("soulsgraph.cli.make_app", lose)
    with pytest.raises(BrokenPipeError):
        main()


def test_a_command_line_is_quoted_for_the_systems_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_line("saves", "restore", "a copy") == "soulsgraph saves restore 'a copy'"
    monkeypatch.setattr(sys, "platform", "win32")
    assert command_line("saves", "restore", "saves\\one") == "soulsgraph saves restore saves\\one"
    for path in ("saves\\a copy", "C:\\R&D\\run", "it's", "a;b", "50%", "(1)", "a,b", "$home", "a^b", ""):
        assert command_line("saves", "restore", path) == f'soulsgraph saves restore "{path}"'
