"""Jobs as Ray tasks: one to a processor, a stop begins no other, and a defect of one ends no other."""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

from soulsgraph.runs.progress import Interruption, bars_on
from soulsgraph.runs.ray_runner import (
    Ending,
    JobProgress,
    JobsDisplay,
    RayJob,
    RemoteSupervisor,
    check_endings,
    confirmed,
    do_job,
    follow,
    run_jobs,
    start_progress_actor,
)
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


def break_down() -> Ending:
    raise LookupError("a defect of this unit")


def die() -> Ending:
    import os

    os._exit(3)


def work_until_told(folder: Path, supervisor) -> None:
    while not supervisor.stop_requested():
        supervisor.follow("dodge", 10).update(1)
        time.sleep(0.05)
    raise Interruption("stopped in stage dodge")


def work_a_while(actor, name: str) -> Ending:
    supervisor = RemoteSupervisor(actor, name)
    for done in range(6):
        supervisor.report(JobProgress("dodge", done, 6))
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
    jobs = {
        name: partial(ray.remote(num_cpus=1, max_retries=0)(task).remote, *arguments)
        for name, (task, *arguments) in tasks.items()
    }
    endings = dict(follow(jobs, actor, told, look))
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
    task = ray.remote(num_cpus=1)(do_job)
    jobs = {
        name: partial(task.remote, tmp_path, RayJob(name, work_until_told, (), ("none",)), actor)
        for name in ("at work", "next", "later")
    }
    endings = dict(follow(jobs, actor, told, lambda: "at work" in ray.get(actor.read.remote())))
    assert {name: str(how) for name, how in told.endings.items()} == {
        "at work": "stopped in stage dodge", "next": "not begun", "later": "not begun",
    }  # fmt: skip
    assert all(ending.stopped for ending in endings.values())
    assert not ray.get(actor.read.remote())
    with pytest.raises(Interruption, match="saved"):
        check_endings(Path("out"), endings)


def test_failures_are_told_before_a_stop_and_nothing_where_all_is_done():
    check_endings(Path("out"), {"a": Ending(), "b": Ending()})
    with pytest.raises(SoulsGraphError, match="a: disk full"):
        check_endings(Path("out"), {"a": Ending("disk full"), "b": Ending("not begun", stopped=True)})


def test_failures_may_be_over_by_themselves_where_none_of_them_stays():
    full, refused = FullDiskError("x", OSError(28, "full")), SoulsGraphError("b is refused.")
    passing = {"a": Ending("its process died"), "b": Ending(full)}
    with pytest.raises(UnavailableError, match=r"its process died; b: .*full\.$"):
        check_endings(Path("out"), passing)
    with pytest.raises(SoulsGraphError) as stays:
        check_endings(Path("out"), {"c": Ending(refused), **passing})
    assert not isinstance(stays.value, UnavailableError)
    assert ".;" not in str(stays.value)


def count(folder: Path, supervisor) -> None:
    (folder / "three.json").write_text("3")


COUNTING = RayJob("counting", count, (), ("three.json",))


def test_a_unit_works_only_where_its_node_sees_the_folder_and_runs_the_same_code(tmp_path, actor):
    with probed(tmp_path) as probe:
        wrong = [replace(probe, code="0" * 16), replace(probe, word="of another folder")]
        wrong.append(replace(probe, folder=tmp_path / "none"))
        for other in wrong:
            assert do_job(tmp_path, COUNTING, actor, replace(other)).failure
            assert not (tmp_path / "three.json").exists()
        assert not do_job(tmp_path, COUNTING, actor, probe).failure
    assert [file.name for file in tmp_path.iterdir()] == ["three.json"]


def test_a_unit_is_done_when_the_driver_sees_what_it_left(tmp_path):
    assert confirmed(tmp_path, COUNTING, Ending(), 0.0).failure, "nothing was written"
    assert confirmed(tmp_path, COUNTING, Ending("stopped", stopped=True), 0.0).stopped
    (tmp_path / "three.json").write_text("3")
    assert confirmed(tmp_path, COUNTING, Ending(), 0.0) == Ending()


def test_a_unit_that_is_done_again_after_its_node_was_lost_is_named_once():
    console = Console(record=True, width=200, file=io.StringIO())
    with bars_on(console) as bars:
        display = JobsDisplay(bars)
        for stage in ("begins", "dodge", "dodge", "begins"):
            display.show({"100 skills": JobProgress(stage, 0, 1)})
    (line,) = console.export_text().splitlines()
    assert line.startswith("100 skills")


class Squares:
    """A study of another kind: each job leaves a file of its own, and nothing is known of seeds or records."""

    def __init__(self, path: Path) -> None:
        self.path, self.sessions, self.together = path, 0, ""

    @contextmanager
    def session(self) -> Iterator[None]:
        self.sessions += 1
        yield

    def assemble(self) -> None:
        self.together = " ".join(sorted(file.read_text() for file in self.path.glob("*.txt")))


def square(folder: Path, number: int, supervisor) -> None:
    supervisor.follow("square", 1).update(1)
    if number == 3:
        raise SoulsGraphError("expected another number")
    (folder / f"{number}.txt").write_text(str(number**2))


def test_a_study_of_any_kind_is_done_job_by_job_and_done_jobs_are_left_alone(tmp_path):
    study, quiet = Squares(tmp_path), Console(quiet=True)
    jobs = [RayJob(f"square of {number}", square, (number,), (f"{number}.txt",)) for number in (1, 2, 3)]
    (tmp_path / "1.txt").write_text("done before")
    with pytest.raises(SoulsGraphError, match="square of 3: expected another number"):
        run_jobs(study, jobs, quiet)
    assert (study.together, study.sessions) == ("4 done before", 1)
    run_jobs(study, jobs[:2], quiet)
    assert study.sessions == 1, "nothing was left"
