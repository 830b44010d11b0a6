"""Damaged files, places that cannot be written and ends from outside: one line, and what is there stays as it is."""

import errno
import json
import os
import shutil
import signal
import sys
from dataclasses import replace

import pytest

from fakes.runs import pretend_run
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("trained") / "run", Plan(scale=0.01)).path


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def _flip_a_bit(version):
    weights = version / "weights.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    return "lock_on/v1/weights.safetensors"


def _another_upstream(version):
    card = version.parents[1] / "camera" / "v1" / "card.json"
    other = replace(RunFolder.open(version.parents[2]).library.card("camera", 1), observation_clip=9.0)
    card.write_text(json.dumps(json.loads(card.read_text()) | other.to_dict()))
    return "lock_on v1"


@pytest.mark.parametrize("damage", [_flip_a_bit, _another_upstream])
def test_a_damaged_library_is_refused_by_every_command_that_reads_it_and_left_alone(refuse, run, damage):
    name = damage(run / "library" / "lock_on" / "v1")
    before = {path: path.read_bytes() for path in run.rglob("*.*") if path.is_file()}
    assert name in refuse("check", run)
    assert name in refuse("evaluate", run, "--episodes", 1)
    assert {path: path.read_bytes() for path in before} == before


def test_a_scenario_file_is_found_from_another_folder_and_noticed_when_it_is_edited(refuse, tmp_path, monkeypatch):
    file = tmp_path / "mine.toml"
    file.write_text('based_on = "iudex-phase1"\nname = "mine"\nflasks = 3\n')
    monkeypatch.chdir(tmp_path)
    run = RunFolder.create(tmp_path / "run", Plan(scenario="mine.toml", scale=0.01))
    monkeypatch.chdir("/")
    assert RunFolder.open(run.path).plan.scenario == str(file)
    assert RunFolder.open(run.path).plan.stage("dodge", parent=1).name == "dodge@mine"
    file.write_text(file.read_text().replace("flasks = 3", "flasks = 4"))
    assert "mine.toml" in refuse("evaluate", "--what", "table", run.path)


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 2), (errno.ENOSPC, 69), (errno.EIO, None)])
def test_a_place_that_forbids_or_lacks_room_is_named_wherever_it_shows(refuse, run, monkeypatch, number, code):
    def fail(run: RunFolder) -> None:
        raise OSError(number, os.strerror(number), str(run.path))

    monkeypatch.setattr("soulsgraph.runs.evaluate.check_library", fail)
    if code:
        assert str(run) in refuse("check", run, code=code)
    else:
        with pytest.raises(OSError, match="run"):
            refuse("check", run)


@pytest.mark.parametrize("answered_by", ["us", "ray"])
def test_a_termination_ends_with_130_and_a_line(monkeypatch, refuse, run, answered_by):
    def terminated(*_: object, **__: object) -> None:
        if answered_by == "ray":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("soulsgraph.cli.output.Screen.show", terminated)
    before = signal.getsignal(signal.SIGTERM)
    refuse("check", run, "--json", code=130)
    assert signal.getsignal(signal.SIGTERM) is before
