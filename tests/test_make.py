"""`make test` sets up the tests' virtual screen by itself, or prints the line to type."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux" or shutil.which("make") is None, reason="needs Linux and make")


@pytest.fixture
def screen(tmp_path):
    """Run `make screen` with nothing on the PATH but the given commands: scripts by name."""

    def run(user, libraries, **commands):
        for name in ("uname", "grep"):
            (tmp_path / name).symlink_to(shutil.which(name))
        for name, script in {"id": f"echo {user}", **commands}.items():
            file = tmp_path / name.replace("_", "-")
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        python = shutil.which("true" if libraries else "false")  # it is asked to load each library
        command = [shutil.which("make"), "--no-print-directory", "screen", f"PYTHON={python}"]
        return subprocess.run(
            command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.parametrize(
    ("there", "missing"), [({}, "xvfb libx11-6 libxext6"), ({"Xvfb": ""}, "libx11-6 libxext6")], ids=["all", "some"]
)
def test_root_on_debian_installs_what_is_missing(screen, tmp_path, there, missing):
    done = screen(user=0, libraries=False, apt_get=f'echo "$@" >> {tmp_path}/asked', **there)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text() == f"update -qq\ninstall -y {missing} -qq\n"


@pytest.mark.parametrize("user", [0, 1000])
def test_others_are_shown_what_to_install_and_nothing_is_installed(screen, tmp_path, user):
    asked = {} if user == 0 else {"apt_get": f"touch {tmp_path}/asked"}
    stopped = screen(user, libraries=True, **asked)
    assert stopped.returncode == 2
    assert "xvfb" in stopped.stderr
    assert not (tmp_path / "asked").exists()


def test_a_screen_that_is_there_is_left_alone(screen, tmp_path):
    done = screen(user=0, libraries=True, Xvfb="", apt_get=f"touch {tmp_path}/asked")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("found", ["Python 3.10.13", "Python 2.7.18", "no such file"])
def test_another_python_is_refused_before_anything_is_installed(tmp_path, found):
    python = tmp_path / "python"
    if found.startswith("Python"):
        # It says which it is, and fails whatever else it is asked, as ours does whether it is the right one.
        python.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{found}"\n[ "$1" = --version ]\n')
        python.chmod(0o755)
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "--no-print-directory", "check", f"PYTHON={python}"]
    # Under `make test` these are set, and a make within a make names its level.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
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
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(target, gpu, broken="nothing"):
        for name, script in {"python": _PYTHON.format(broken=broken), "nvidia-smi": f"#!/bin/sh\n{gpu}\n"}.items():
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
        command = ["make", "--no-print-directory", target, f"PYTHON={tmp_path / 'python'}"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
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
