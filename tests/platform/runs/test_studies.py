"""Units of studies: one to a processor, a stop begins no other, a defect of one ends no other; without Ray in turn."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

from soulsgraph.results.tables import read_rows
from soulsgraph.runs.progress import Interruption, UnitProgress, UnitSupervisor
from soulsgraph.runs.run_folder import RunFolderError
from soulsgraph.runs.studies import (
    Ending,
    check_endings,
    confirmed,
    do_remotely,
    follow,
    in_turn,
    run_study,
    start_progress_actor,
)
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Tables, Unit, sessions_of
from soulsgraph_clusters.sessions import nodes
from soulsgraph_clusters.sessions.nodes import probed
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.files import FullDiskError


class Told:
    """A display that remembers how jobs ended."""

    def __init__(self) -> None:
        self.endings: dict[str, str] = {}

    def show(self, standings) -> None:
        self.standings = dict(standings)

    def ended(self, job: str, how: str) -> None:
        self.endings[job] = how


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(nodes, "SEEN_WITHIN_S", 0.0)


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    # Ray's workers import from no folder of the tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with connect("local", num_cpus=1):
        yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def actor(_session) -> Any:
    return start_progress_actor()


@dataclass(frozen=True)
class Numbers:
    """A plan of another kind: nothing is known of seeds or records."""

    numbers: tuple[int, ...]


class Squares(StudyFolder[Numbers]):
    """A study whose units square numbers; the 4 is what the others go on with, 3 is refused."""

    kind, plan_file, holds = "study of squares", "squares.json", StudyFile[Numbers]
    data = "of today"

    @staticmethod
    def fights(plan):
        return {"numbers": Squares.data}

    def check_memory(self) -> None:
        """It needs none."""

    @property
    def units(self):
        return tuple(Unit(f"square of {one}", square, (one,), first=one == 4) for one in self.plan.numbers)


def square(folder: StudyFolder, number: int, supervisor) -> Tables:
    supervisor.follow("square", 1).update(1)
    if number == 3:
        raise SoulsGraphError("expected another number")
    return {"squares": [{"of": number, "square": number**2}], "none": []}


def named(name: str) -> Unit:
    return Unit(name, square, ())


def break_down() -> Ending:
    raise LookupError("a defect of this unit")


def die() -> Ending:
    import os

    os._exit(3)


def work_until_told(folder: StudyFolder, supervisor) -> Tables:
    while not supervisor.stop_requested():
        supervisor.follow("dodge", 10).update(1)
        time.sleep(0.05)
    raise Interruption("stopped in stage dodge")


def work_a_while(actor, name: str) -> Ending:
    supervisor = UnitSupervisor(lambda *of: ray.get(actor.record.remote(*of)), name)
    for done in range(6):
        supervisor.report(UnitProgress("dodge", done, 6))
        time.sleep(0.1)
    supervisor.report(None)
    return Ending()


def test_a_units_defect_ends_no_other_and_no_more_are_at_work_than_there_are_processors(actor):
    told, most = Told(), 0

    def look() -> bool:
        nonlocal most
        most = max(most, len(ray.get(actor.read.remote())))
        return False

    tasks = {"first": (work_a_while, actor, "first"), "broken": (break_down,), "dead": (die,)}
    tasks["last"] = work_a_while, actor, "last"
    units = {
        named(name): partial(ray.remote(num_cpus=1, max_retries=0)(task).remote, *arguments)
        for name, (task, *arguments) in tasks.items()
    }
    endings = {unit.name: ending for unit, ending in follow(units, actor, told, look)}
    assert most == 1
    assert {name for name, how in told.endings.items() if how == "done"} == {"first", "last"}
    assert endings["dead"].failure
    with pytest.raises(ExceptionGroup, match="broken") as caught:
        check_endings(Path("out"), endings)
    (defect,) = caught.value.exceptions
    assert isinstance(defect, LookupError)
    assert "in break_down" in str(defect)


def test_a_stop_begins_no_unit_that_waits_and_lets_those_at_work_save(tmp_path):
    actor, told = start_progress_actor(), Told()
    task, study = ray.remote(num_cpus=1)(do_remotely), Squares.create(tmp_path / "study", Numbers((1,)))
    units = [replace(named(name), work=work_until_told) for name in ("at work", "next", "later")]
    tasks = {unit: partial(task.remote, study, (), unit, actor) for unit in units}
    endings = dict(follow(tasks, actor, told, lambda: "at work" in ray.get(actor.read.remote())))
    assert {name: str(how) for name, how in told.endings.items()} == {
        "at work": "stopped in stage dodge", "next": "not begun", "later": "not begun",
    }  # fmt: skip
    assert all(ending.stopped for ending in endings.values())
    assert not ray.get(actor.read.remote())
    with pytest.raises(Interruption, match="saved"):
        check_endings(Path("out"), endings)


def test_failures_may_be_over_by_themselves_where_none_of_them_stays():
    full, refused = FullDiskError("x", OSError(28, "full")), SoulsGraphError("b is refused.")
    passing = {"a": Ending("its process died"), "b": Ending(full)}
    with pytest.raises(UnavailableError, match=r"its process died; b: .*full\.$"):
        check_endings(Path("out"), passing)
    with pytest.raises(SoulsGraphError) as stays:
        check_endings(Path("out"), {"c": Ending(refused), **passing})
    assert not isinstance(stays.value, UnavailableError)
    assert ".;" not in str(stays.value)


def test_a_unit_works_only_where_its_node_sees_the_folder_and_runs_the_same_code(tmp_path, actor):
    study = Squares.create(tmp_path / "study", Numbers((2,)))
    (unit,) = study.units
    with probed(study.path) as probe:
        wrong = [replace(probe, code="0" * 16), replace(probe, word="of another folder")]
        wrong.append(replace(probe, folder=tmp_path / "none"))
        for other in wrong:
            assert do_remotely(study, (), unit, actor, replace(other)).failure
            assert study.left == [unit]
        assert not do_remotely(study, (), unit, actor, probe).failure
    assert study.left == []


def test_a_unit_is_done_when_the_driver_sees_its_rows(tmp_path):
    study = Squares.create(tmp_path / "study", Numbers((2,)))
    (unit,) = study.units
    assert confirmed(study, unit, Ending(), 0.0).failure, "nothing was written"
    assert confirmed(study, unit, Ending("stopped", stopped=True), 0.0).stopped
    study.keep(unit, {})
    assert confirmed(study, unit, Ending(), 0.0) == Ending()


def squares(study: Squares) -> list[int]:
    return [row["square"] for row in read_rows(study.path / "results" / "squares.parquet")]


@pytest.mark.parametrize("by_ray", [True, False])
def test_a_study_is_done_unit_by_unit_and_units_that_are_done_are_left_alone(tmp_path, by_ray, monkeypatch):
    if not by_ray:
        monkeypatch.setattr("soulsgraph.runs.studies.sys.platform", "win32")
    study, quiet = Squares.create(tmp_path / "study", Numbers((1, 2, 4))), Console(quiet=True)
    study.keep(study.units[0], {"squares": [{"of": 1, "square": 100}]})
    run_study(study, quiet)
    assert squares(study) == [100, 4, 16]
    assert not (study.path / "results" / "none.parquet").exists()
    assert study.left == []
    (session,) = sessions_of(study.path)
    assert session.started
    run_study(Squares.open(study.path), quiet)
    assert len(sessions_of(study.path)) == 1, "nothing was left"


def test_a_unit_that_fails_is_named_and_the_others_are_done(tmp_path):
    study = Squares.create(tmp_path / "study", Numbers((3, 2)))
    with pytest.raises(SoulsGraphError, match="square of 3: expected another number"):
        in_turn(study, study.units, Console(quiet=True))
    assert squares(study) == [4]
    assert [unit.name for unit in study.left] == ["square of 3"]


def test_a_study_is_not_opened_where_its_fights_changed(tmp_path, monkeypatch):
    study = Squares.create(tmp_path / "study", Numbers((2,)))
    assert Squares.open(study.path).plan == study.plan
    monkeypatch.setattr(Squares, "data", "of tomorrow")
    with pytest.raises(RunFolderError, match=r"squares\.json"):
        Squares.open(study.path)


def test_a_session_is_recorded_when_it_begins(tmp_path):
    study = Squares.create(tmp_path / "study", Numbers((2,)))
    with study.session():
        (begun,) = sessions_of(study.path)
        assert begun.wall_time_s == 0.0
        assert {"python", "ray", "torch"} <= begun.versions.keys()
        assert begun.machine["cores"] >= 1
    (ended,) = sessions_of(study.path)
    assert replace(ended, wall_time_s=0.0) == begun
    with study.session():
        assert len(sessions_of(study.path)) == 2
