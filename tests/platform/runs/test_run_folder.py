import json
import os
import subprocess
import sys
from contextlib import ExitStack
from threading import Timer

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.runs import run_folder
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph_envs.core.errors import ReadError, SoulsGraphError
from soulsgraph_envs.core.files import WriteError


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", Plan(seed=5, scale=0.5))


def _change(run, **changes):
    file = run.path / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_run_opens_with_its_plan(run):
    assert RunFolder.open(run.path).plan == Plan(seed=5, scale=0.5)


def test_a_run_is_begun_in_an_empty_folder_only(run, tmp_path):
    with pytest.raises(RunFolderError, match=r"found a run; continue with `RunFolder\.open` or name another"):
        RunFolder.create(run.path, Plan())
    assert RunFolder.open(run.path).plan.seed == 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="found other files; remove them or name another folder"):
        RunFolder.create(tmp_path / "other", Plan())
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", Plan())


def test_a_run_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises((ReadError, WriteError), match="choose a path that leads through folders"):
            RunFolder.create(path, Plan())


def test_a_folder_that_is_no_run_is_told(tmp_path):
    missing = tmp_path / "my runs"
    with pytest.raises(RunFolderError, match=f"found no such folder; .*: `RunFolder.create.path='{missing}'"):
        RunFolder.open(missing)
    with pytest.raises(RunFolderError, match=r"no plan\.json in it; name the folder of a run"):
        RunFolder.open(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(RunFolderError, match="expected a plan of format 'soulsgraph run'"):
        RunFolder.open(tmp_path)


def test_a_run_of_another_version_is_told(run):
    _change(run, format_version=2)
    with pytest.raises(RunFolderError, match="format version 1"):
        RunFolder.open(run.path)


def test_a_run_of_another_graph_version_is_told(run):
    _change(run, graph={"name": "paper", "digest": "0" * 64})
    with pytest.raises(RunFolderError, match=r"expected the graph 'paper' of this version .*begin a new run"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("plan", [None, {}, {"sede": 1}, {"options": {"camera": 3}}])
def test_a_plan_that_does_not_hold_is_told(run, plan):
    _change(run, plan=plan)
    with pytest.raises(SoulsGraphError, match=r"plan\.json"):
        RunFolder.open(run.path)


def test_two_processes_never_write_one_run(run):
    code = (
        "import sys; from pathlib import Path; from soulsgraph.runs.run_folder import RunFolder\n"
        "with RunFolder.open(Path(sys.argv[1])).locked(): print('locked')"
    )
    command = [sys.executable, "-c", code, str(run.path)]
    with run.locked():
        refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "expected no other process writing here, found process" in refused.stderr
    free = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert free.stdout.strip() == "locked", free.stderr
    with run.locked():
        pass


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
    (release := Timer(0.2, holder.close)).start()
    with run.locked():
        assert holder.handle == -1
    release.join()


def test_a_run_is_not_locked_by_who_finds_its_folder_occupied(tmp_path):
    late, run = (RunFolder.planned(tmp_path / "run", Plan()) for _ in range(2))
    with run.locked(), pytest.raises(RunFolderError, match="found a run"):
        late.make_room()


def test_a_planned_run_is_begun_in_a_folder_that_stayed_empty_only(tmp_path):
    planned = RunFolder.planned(tmp_path / "run", Plan(scale=0.01))
    assert not planned.path.exists()
    RunFolder.create(tmp_path / "run", Plan(scale=0.02))
    with pytest.raises(RunFolderError, match=r"found a run; continue with `RunFolder\.open`"):
        planned.begin()
    assert RunFolder.open(tmp_path / "run").plan.scale == 0.02


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError):
        RunFolder.planned(tmp_path / "file" / "run", Plan(scale=0.01))


def test_a_run_whose_own_scenario_changed_is_refused(tmp_path):
    (tmp_path / "own.toml").write_text('based_on = "iudex-phase1"\nname = "own"\nflasks = 3\n')
    run = RunFolder.create(tmp_path / "run", Plan(scenario=str(tmp_path / "own.toml"), preset="fast", scale=0.01))
    assert RunFolder.open(run.path).plan == run.plan
    _change(run, scenario_digest="0" * 64)
    with pytest.raises(RunFolderError, match="it changed"):
        RunFolder.open(run.path)
