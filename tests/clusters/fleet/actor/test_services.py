"""Units and scripts that keep a host or a head running: valid, and of options that the commands have."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import soulsgraph_clusters
from soulsgraph.cli import main

SERVICES = Path(soulsgraph_clusters.__file__).parent / "services"
UNITS = sorted((SERVICES / "systemd").iterdir())
SOULSGRAPH = Path(sys.executable).with_name("soulsgraph")
VERIFY = shutil.which("systemd-analyze")


def _code(file):
    """Return a file's text without comments."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


@pytest.fixture
def options_of(monkeypatch, capsys):
    """Return a function that returns the options of a command, as its help has them."""

    def options(*words):
        monkeypatch.setattr(sys, "argv", ["soulsgraph", *words, "--help"])
        main()
        return {*re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)}

    return options


@pytest.fixture
def verify(tmp_path):
    """Examine a unit's text where its program is installed, and return what there is to object to."""
    program = tmp_path / ".local" / "share" / "soulsgraph" / "bin" / "soulsgraph"
    program.parent.mkdir(parents=True)
    program.symlink_to(SOULSGRAPH)
    (tmp_path / "run").mkdir(mode=0o700)

    def examine(name, text):
        file = tmp_path / name
        file.write_text(text.replace("/opt/soulsgraph/bin/soulsgraph", str(SOULSGRAPH)))
        user = ("--user",) if "%h" in text else ()
        place = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
        command = [VERIFY, *user, "verify", str(file)]
        done = subprocess.run(command, env=os.environ | place, capture_output=True, text=True, timeout=600, check=False)
        return done.stdout + done.stderr + (f"ended with {done.returncode}" if done.returncode else "")

    return examine


@pytest.mark.skipif(VERIFY is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_object_to(unit, verify):
    assert verify(unit.name, unit.read_text(encoding="utf-8")) == ""


def test_the_pc_and_the_head_are_started_with_options_that_they_have(options_of):
    known = options_of("fleet", "host")
    for file in (SERVICES / "systemd" / "soulsgraph-host.service", SERVICES / "windows" / "run-host.ps1"):
        options = {*re.findall(r"--[a-z][a-z-]*", _code(file))}
        assert "--head" in options
        assert options <= known
    (line,) = re.findall("^ExecStart=(.*)$", _code(SERVICES / "systemd" / "soulsgraph-head.service"), re.MULTILINE)
    assert {*re.findall(r"--[a-z][a-z-]*", line)} <= options_of(line.split()[1])
