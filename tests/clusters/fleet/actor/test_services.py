"""Units and scripts that keep a host or a head running: valid, and of options that the commands have."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import soulsgraph_clusters

SERVICES = Path(soulsgraph_clusters.__file__).parent / "services"
UNITS, SCRIPTS = sorted((SERVICES / "systemd").iterdir()), sorted((SERVICES / "windows").iterdir())
SOULSGRAPH = Path(sys.executable).with_name("soulsgraph")
VERIFY = shutil.which("systemd-analyze")


def _code(file):
    """Return a file's text without comments."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _help(*command):
    done = subprocess.run([SOULSGRAPH, *command, "--help"], capture_output=True, text=True, timeout=600, check=True)
    return {*re.findall(r"--[a-z][a-z-]*", done.stdout)}


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
    text = unit.read_text(encoding="utf-8")
    assert verify(unit.name, text) == ""
    assert "Unknown key 'NoNewPrivilege'" in verify(unit.name, text.replace("NoNewPrivileges", "NoNewPrivilege"))
    assert "not executable" in verify(unit.name, text.replace("bin/soulsgraph", "bin/another"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_allows_as_many_open_files_as_a_large_fleet_has_games(unit):
    (allowed,) = re.findall(r"^LimitNOFILE=(\d+)$", _code(unit), re.MULTILINE)
    assert int(allowed) > 100_000


def test_there_is_a_unit_for_the_head_and_one_for_a_pc():
    assert [unit.name for unit in UNITS] == ["soulsgraph-head.service", "soulsgraph-host.service"]
    for unit in UNITS:
        assert "NoNewPrivileges=yes" in _code(unit)
        assert re.search(r"^Restart=(always|on-failure)$", _code(unit), re.MULTILINE)


def test_the_pc_is_started_with_options_that_it_has():
    known = _help("host")
    for file in (SERVICES / "systemd" / "soulsgraph-host.service", SERVICES / "windows" / "run-host.ps1"):
        options = {*re.findall(r"--[a-z][a-z-]*", _code(file))}
        assert options == {"--head", "--token-file", "--ca", "--games"}
        assert options <= known


def test_the_head_is_started_with_options_that_it_has():
    (line,) = re.findall("^ExecStart=(.*)$", _code(SERVICES / "systemd" / "soulsgraph-head.service"), re.MULTILINE)
    command, _, trained = line.partition(" -- ")
    assert command.split()[1:] == ["supervise"]
    assert {*re.findall(r"--[a-z][a-z-]*", trained)} <= _help(trained.split()[0])


def test_a_token_is_no_argument_and_only_its_owner_reads_it():
    host = _code(SERVICES / "systemd" / "soulsgraph-host.service")
    assert "LoadCredential=token:" in host
    assert "--token-file %d/token" in host
    assert "/inheritance:r" in _code(SERVICES / "windows" / "install-host-task.ps1")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_that_nobody_ran_says_so(script):
    assert script.read_text(encoding="utf-8").startswith("# Not run by its authors, who had no Windows at hand")
