"""The folder of a run: begun once, opened with what it holds, and written by one process at a time."""

import json
import os
from contextlib import ExitStack
from threading import Event, Timer

import pytest

from soulsgraph.runs import run_folder
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder, RunFolderError, check_given
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.core.machine import Memory
from soulsgraph_policies.learning.hyperparameters import PRESETS


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", Plan(seed=5, scale=0.5))


def _change(run, **changes):
    file = run.path / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_run_is_begun_in_an_empty_folder_only(run, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    for path in (run.path, tmp_path / "other"):
        with pytest.raises(RunFolderError, match=str(path)):
            RunFolder.create(path, Plan())
    assert RunFolder.open(run.path).plan.seed == 5
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", Plan())


def test_a_plan_that_needs_more_memory_than_there_is_begins_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(10**6, 10**6))
    with pytest.raises(DataError):
        RunFolder.create(tmp_path / "run", Plan())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"format": "soulsgraph sweep"}, "format"),
        ({"format_version": 2}, "format.version"),
        ({"format_version": True}, "format.version"),
        ({"graph": {"name": "paper", "digest": "0" * 64}}, "graph"),
        ({"plan": {"sede": 1}}, r"plan\.sede"),
    ],
)
def test_a_plan_file_that_does_not_hold_is_refused(run, changes, name):
    _change(run, **changes)
    with pytest.raises(SoulsGraphError, match=rf"plan\.json.*{name}"):
        RunFolder.open(run.path)


def test_a_value_that_contradicts_a_runs_plan_is_refused_and_what_the_preset_has_does_not(run):
    check_given(run.path, run.plan, {"seed": 5, "lanes": PRESETS["best"].lanes})
    with pytest.raises(SoulsGraphError):
        check_given(run.path, run.plan, {"lanes": 3})


def test_a_run_whose_holder_ends_by_itself_while_it_is_looked_at_is_not_refused(run, monkeypatch):
    with ExitStack() as holder:
        holder.enter_context(run.locked())

        def ends_by_itself(*_):
            holder.close()
            return False

        monkeypatch.setattr(run_folder, "end_orphan", ends_by_itself)
        with run.locked():
            assert (run.path / ".lock-owner").read_text().split()[0] == str(os.getpid())


def test_a_lock_that_is_held_for_a_moment_is_waited_for(run):
    holder = run_folder.take_lock(run.path)
    released = Event()

    def release():
        released.set()
        holder.close()

    (later := Timer(0.2, release)).start()
    with run.locked():
        assert released.is_set()
    later.join()


def test_a_planned_run_is_begun_in_a_folder_that_stayed_empty_only(tmp_path):
    planned = RunFolder.planned(tmp_path / "run", Plan(scale=0.01))
    assert not planned.path.exists()
    RunFolder.create(tmp_path / "run", Plan(scale=0.02))
    with pytest.raises(RunFolderError):
        planned.begin()
    assert RunFolder.open(tmp_path / "run").plan.scale == 0.02
