"""`make` installs what plays before what trains, into a suitable Python, and again where that failed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux" or shutil.which("make") is None, reason="needs Linux and make")


def _make(folder, target, python, path):
    """Make a target in a folder that has what `make` reads."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = ["make", "--no-print-directory", target, f"PYTHON={python}"]
    # Under `make test` these are set, and a make within a make names its level.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(command, cwd=folder, env=env | {"PATH": path}, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("found", ["Python 3.10.13", "Python 2.7.18", "no such file"])
def test_another_python_is_refused_before_anything_is_installed(tmp_path, found):
    python = tmp_path / "python"
    if found.startswith("Python"):
        # It says which it is, and fails whatever else it is asked, as ours does whether it is the right one.
        python.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{found}"\n[ "$1" = --version ]\n')
        python.chmod(0o755)
    done = _make(tmp_path, "check", python, os.environ["PATH"])
    assert done.returncode == 2
    assert str(python) in done.stderr
    assert not (tmp_path / ".venv").exists()


#: It notes what it is asked, and makes the environment of another such one; an installation with `broken` in it fails.
_PYTHON = """#!/bin/sh
echo "$*" >> asked
case "$*" in *venv*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;; *install*{broken}*) exit 1;; esac
"""


@pytest.fixture
def installed(tmp_path):
    """Make a target with a Python that installs nothing; return what pip was to install, one after another."""

    def run(target, gpu, broken="nothing"):
        for name, script in {"python": _PYTHON.format(broken=broken), "nvidia-smi": f"#!/bin/sh\n{gpu}\n"}.items():
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        done = _make(tmp_path, target, tmp_path / "python", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        asked = (tmp_path / "asked").read_text().splitlines()
        return done.returncode, [line.partition(" install ")[2] for line in asked if " install " in line]

    return run


@pytest.mark.parametrize(("gpu", "index"), [("true", False), ("false", True)], ids=["gpu", "none"])
def test_what_plays_is_installed_first_then_what_trains_and_the_tools_for_tests_alone(installed, gpu, index):
    code, (plays, torch, trains) = installed(".venv/ready", gpu)
    assert code == 0
    assert "[train" not in plays
    assert "torch==" in torch
    assert ("https://download.pytorch.org/whl/cpu" in torch) == index
    assert "[train" in trains
    code, (*_, tools) = installed(".venv/dev", gpu)
    assert (code, "[dev]" in tools, "[dev]" in f"{plays}{torch}{trains}") == (0, True, False)


@pytest.mark.parametrize("broken", ["torch==", "train,watch", "watch"])
def test_an_installation_that_fails_is_made_again(installed, tmp_path, broken):
    assert installed(".venv/ready", "false", broken)[0] == 2
    assert not (tmp_path / ".venv" / "ready").exists()
    assert installed(".venv/ready", "false")[0] == 0
