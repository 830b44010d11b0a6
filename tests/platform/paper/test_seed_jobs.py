"""Jobs as Ray tasks: one to a processor, a stop begins no other, and a defect of one ends no other."""

import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import ray

from soulsgraph.paper.ray_runner import (
    Ending,
    JobProgress,
    RemoteSupervisor,
    check_endings,
    confirmed,
    do_unit,
    follow,
    start_progress_actor,
)
from soulsgraph.paper.study import REFERENCES, ReproductionFolder, Study
from soulsgraph.runs.progress import Interruption
from soulsgraph_clusters.sessions.nodes import Mark, marked
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import SoulsGraphError


class Told:
    """A display that remembers how jobs ended."""

    def __init__(self) -> None:
        self.endings: dict[str, str] = {}

    def show(self, standings) -> None:
        self.standings = dict(standings)

    def ended(self, job: str, how: str) -> None:
        self.endings[job] = how


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    # Ray's workers import from no folder of the tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with connect("local", num_cpus=1):
        yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def succeed() -> Ending:
    return Ending()


def break_down() -> Ending:
    raise LookupError("a defect of this unit")


def die() -> Ending:
    import os

    os._exit(3)


def work_until_told(actor, name: str) -> Ending:
    supervisor = RemoteSupervisor(actor, name)
    while not supervisor.stop_requested():
        supervisor.report(JobProgress("dodge", 1, 10))
        time.sleep(0.05)
    return Ending("stopped in stage dodge", stopped=True)


def work_a_while(actor, name: str) -> Ending:
    supervisor = RemoteSupervisor(actor, name)
    for done in range(12):
        supervisor.report(JobProgress("dodge", done, 12))
        supervisor.stop_requested()
        time.sleep(0.1)
    supervisor.report(None)
    return Ending()


def test_a_units_defect_ends_no_other_and_keeps_its_traceback():
    actor, told = start_progress_actor(), Told()
    tasks = {"first": succeed, "broken": break_down, "dead": die, "last": succeed}
    jobs = {name: ray.remote(num_cpus=1, max_retries=0)(task).remote for name, task in tasks.items()}
    endings = dict(follow(jobs, actor, told, lambda: False))
    assert {name for name, how in told.endings.items() if how == "done"} == {"first", "last"}
    assert "its process died" in str(endings["dead"].failure)
    with pytest.raises(ExceptionGroup, match=r"2 of 4 units failed: .*broken: met a defect") as caught:
        check_endings(Path("out"), endings)
    (defect,) = caught.value.exceptions
    assert isinstance(defect, LookupError)
    assert "in break_down" in str(defect)


def test_a_stop_begins_no_unit_that_waits_and_lets_those_at_work_save():
    actor, told = start_progress_actor(), Told()
    task = ray.remote(num_cpus=1)(work_until_told)
    jobs = {name: partial(task.remote, actor, name) for name in ("at work", "next", "later")}
    endings = dict(follow(jobs, actor, told, lambda: "at work" in ray.get(actor.read.remote())))
    assert told.endings == {"at work": "stopped in stage dodge", "next": "not begun", "later": "not begun"}
    with pytest.raises(Interruption, match=r"Go on with: `do_units.folder='out'"):
        check_endings(Path("out"), endings)


def test_references_at_work_show_how_far_they_are_and_stop_when_told(tmp_path):
    folder = ReproductionFolder.create(tmp_path / "out", Study(seeds=(100,), episodes=5_000))
    actor, told = start_progress_actor(), Told()
    jobs = {"references": partial(ray.remote(num_cpus=1)(do_unit).remote, folder.path, REFERENCES, actor)}
    endings = dict(follow(jobs, actor, told, lambda: "references" in ray.get(actor.read.remote())))
    assert {name: str(how) for name, how in told.endings.items()} == {
        "references": "stopped during the evaluation; it is done anew."
    }
    assert endings["references"].stopped
    assert not (folder.path / "references.json").exists()
    assert not ray.get(actor.read.remote())


def test_failures_are_told_before_a_stop_and_nothing_where_all_is_done():
    check_endings(Path("out"), {"a": Ending(), "b": Ending()})
    with pytest.raises(SoulsGraphError, match="1 of 2 units failed: a: disk full"):
        check_endings(Path("out"), {"a": Ending("disk full"), "b": Ending("not begun", stopped=True)})


def test_no_more_units_are_at_work_than_there_are_processors():
    actor, told, most = start_progress_actor(), Told(), 0

    def look() -> bool:
        nonlocal most
        most = max(most, len(ray.get(actor.read.remote())))
        return False

    task = ray.remote(num_cpus=1)(work_a_while)
    endings = dict(follow({f"{i}": partial(task.remote, actor, f"{i}") for i in range(3)}, actor, told, look))
    assert most == 1
    assert [ending.failure for ending in endings.values()] == ["", "", ""]


def test_a_unit_works_only_where_it_reads_the_drivers_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(Mark.problem, "__defaults__", (0.0,))
    folder = ReproductionFolder.create(tmp_path / "out", Study(seeds=(100,), episodes=1))
    other = Mark(folder.path, "of another folder at the same path")
    for there, mark in ((folder.path, other), (tmp_path / "none", Mark(tmp_path / "none", "word"))):
        ending = do_unit(there, REFERENCES, start_progress_actor(), mark)
        assert re.search(
            r"found (another|no such) folder .*on node \S+ \(\d[\d.]+\); let these nodes mount", str(ending.failure)
        )
    assert not (folder.path / "references.json").exists()
    with marked(folder.path) as mark:
        ending = do_unit(mark.folder, REFERENCES, start_progress_actor(), mark)
    assert not ending.failure
    assert not mark.file.exists()
    assert confirmed(folder, REFERENCES, ending, 0.0) == ending


def test_a_unit_is_done_when_the_driver_sees_what_its_node_wrote(tmp_path):
    folder = ReproductionFolder.create(tmp_path / "out", Study(seeds=(100,), episodes=1))
    unseen = confirmed(folder, REFERENCES, Ending(written={"references.json": "0" * 64}, node="node attic"), 0.0)
    assert "references.json of references in another state than node attic wrote it" in str(unseen.failure)
    folder.record(REFERENCES, "rows", lambda: {"rows": []})
    assert confirmed(folder, REFERENCES, Ending(written={"references.json": "0" * 64}, node="attic"), 0.0).failure
    assert not confirmed(folder, REFERENCES, Ending(written=folder.written(REFERENCES)), 0.0).failure
    assert confirmed(folder, REFERENCES, Ending("stopped", stopped=True), 0.0).stopped
