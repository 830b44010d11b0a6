"""The page of a fleet followed literally, between two network namespaces: every block of its first section in order."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.clusters import Program
from fakes.disturbing import Cable
from fakes.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fleet.md"
#: The head's address on the page.
ADDRESS = "10.88.0.1"
_STEP = re.compile(r"^\*\*(\d)\. (.+?)\*\*", re.M)
_BLOCK = re.compile(r'^```(sh|toml)(?: title="([\w.]+)")?\n(.*?)^```$', re.M | re.S)


def steps(address):
    """Yield for each block whether it is the PC's, the name of the file that it is, and its text."""
    section = PAGE.read_text(encoding="utf-8").partition("## Two machines in ten minutes")[2].partition("\n## ")[0]
    _, *parts = _STEP.split(section)
    for title, text in zip(parts[1::3], parts[2::3], strict=True):
        for _, name, block in _BLOCK.findall(text):
            yield title == "On the PC", name, block.replace(ADDRESS, address)


class Machine:
    """A folder, an environment of Python, and a network: words before each command."""

    def __init__(self, folder, activate, before=()):
        self.folder, self._activate, self._before = folder, activate, [*before]
        folder.mkdir()

    def command(self, block, connected=True):
        """Return the command line of a block, in a shell whose environment is active where there is one."""
        activate = f"test ! -e {self._activate} || source {self._activate}\n"
        words = ["bash", "-euo", "pipefail", "-c", f"cd {self.folder}\n{activate}{block}"]
        return [*self._before, *words] if connected else words

    def run(self, block, connected=True):
        """Run a block to its end, and return what it printed."""
        words = self.command(block, connected)
        done = subprocess.run(words, env=_clean(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, block + done.stdout + done.stderr
        return done.stdout + done.stderr


def _clean():
    """Return an environment without this test's own Python."""
    left_out = ("PYTHON", "VIRTUAL_ENV", "RAY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


@pytest.mark.docs
def test_two_machines_train_by_what_the_page_says(tmp_path):
    if not Cable.possible():
        pytest.skip("this user may not make network namespaces here")
    cable = Cable()
    head = Machine(tmp_path / "head", Path(sys.executable).with_name("activate"))
    pc = Machine(tmp_path / "pc", tmp_path / "pc" / ".venv" / "bin" / "activate", cable.before)
    printed, host = "", None
    try:
        for on_pc, name, block in steps(cable.address):
            machine = pc if on_pc else head
            if name:
                (machine.folder / name).write_text(block, encoding="utf-8")
            elif "pip wheel" in block:
                # A namespace with one cable has no way to a package index.
                subprocess.run(
                    ["bash", "-euc", block],
                    env=_clean() | {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"},
                    capture_output=True,
                    timeout=PATIENCE_S,
                    check=True,
                )
                _carry(head, pc)
            elif block.startswith("soulsgraph fleet host "):
                # What is not yet sent waits in this test's folder, not in its user's.
                host = Program("host", pc.command(block), _clean() | {"XDG_STATE_HOME": str(tmp_path)}, tmp_path)
                _await_line(host, "looking for the head")
            elif "pip install" in block:
                # A namespace with one cable has no way to a package index.
                pc.run(block, connected=False)
            else:
                printed += machine.run(block)
        assert re.search(r"attic/1 +simulator x 8, .* can play", printed)
        assert "camera: attic/1 joined, playing by simulator" in printed
        assert re.search(r"^camera v1: 400 steps", printed, re.M)
        assert re.search(r"^heal_attack v1: ", printed, re.M)
        assert "attic/1" in head.run("soulsgraph fleet status runs/curriculum")
        os.killpg(host.pid, signal.SIGINT)
        assert host.wait() == 0, host.logs()
    finally:
        if host is not None:
            host.kill()
        cable.close()


def _await_line(program, words):
    until(lambda: words in program.logs() or not program.running, f"{words!r} of {program.name}")
    assert program.running, program.logs()


def _carry(head, pc):
    """Do what the page says between the steps: the token is moved, three files are copied."""
    shutil.move(head.folder / "attic.token", pc.folder / "attic.token")
    for file in (head.folder / "head.pem", ROOT / "constraints.txt", *ROOT.glob("dist/soulsgraph-*.whl")):
        shutil.copy(file, pc.folder)
