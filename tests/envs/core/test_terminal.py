"""Standard streams that are closed, unread or full: work goes on, and nothing else is written in their place."""

import os
import subprocess
import sys

import pytest

from soulsgraph_envs.core.terminal import UNREAD

_KEPT = """
import sys
from soulsgraph_envs.core.terminal import go_on_unread, keep_streams
keep_streams()
if "on" in sys.argv: go_on_unread()
print("text \\udcff", flush=True)
print("more", flush=True)
print("to the end", file=sys.stderr)
"""


def _run(*words, **streams):
    command = [sys.executable, "-c", _KEPT, *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600, **streams)


@pytest.fixture
def unread():
    """Return a pipe that nobody reads."""
    end, written = os.pipe()
    os.close(end)
    yield written
    os.close(written)


def test_what_nobody_reads_ends_a_command_without_a_word_and_no_work(unread):
    done = _run(stdout=unread)
    assert (done.returncode, done.stderr) == (UNREAD, "")
    done = _run("on", stdout=unread)
    lost = "standard output: Broken pipe; the work goes on without it\n"
    assert (done.returncode, done.stderr) == (0, f"{lost}to the end\n")


def test_a_full_disk_under_standard_output_ends_no_work():
    with open("/dev/full", "w") as full:
        done = _run("on", stdout=full)
        assert done.returncode == 0
        assert done.stderr.splitlines()[1:] == ["to the end"]
        refused = _run(stdout=full)
        # And nothing more: Python itself would try again at the end.
        assert refused.returncode == 1
        assert refused.stderr.endswith("OSError: [Errno 28] No space left on device: 'standard output'\n")


def test_errors_that_find_no_place_are_none_of_their_own():
    command = [sys.executable, "-c", _KEPT]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "text \\udcff\nmore\n")


def test_a_stream_that_is_closed_is_not_the_next_file_that_is_opened(tmp_path):
    code = """
import os, sys
from soulsgraph_envs.core.terminal import open_streams
open_streams()
file = open(sys.argv[1], "w")
assert file.fileno() > 2, file.fileno()
print("an error", file=sys.stderr)
os.write(2, b"of a library")
"""
    shell = ("sh", "-c", 'exec <&- >&- 2>&-; exec "$@"', "sh", sys.executable, "-c", code, str(tmp_path / "file"))
    assert subprocess.run(shell, timeout=600).returncode == 0
    assert (tmp_path / "file").read_text() == ""
