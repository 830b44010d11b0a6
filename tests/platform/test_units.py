"""Units as Ray tasks: a stop cancels those that wait, and a defect of one ends no other."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from soulsgraph.interruption import Interrupted
from soulsgraph.reproduction.supervision import RemoteSupervisor, Standing, open_noticeboard
from soulsgraph.reproduction.work import Ending, follow, judge_endings
from soulsgraph_clusters.session import connect
from soulsgraph_envs.errors import SoulsGraphError


class Told:
    """A display that remembers how units ended."""

    def __init__(self) -> None:
        self.endings: dict[str, str] = {}

    def show(self, standings) -> None:
        self.standings = dict(standings)

    def ended(self, unit: str, how: str) -> None:
        self.endings[unit] = how


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    with connect("local", num_cpus=1):
        yield


def succeed() -> Ending:
    return Ending()


def break_down() -> Ending:
    raise LookupError("a defect of this unit")


def die() -> Ending:
    import os

    os._exit(3)


def work_until_told(noticeboard, name: str) -> Ending:
    supervisor = RemoteSupervisor(noticeboard, name)
    while not supervisor.stop_requested():
        supervisor.report(Standing("dodge", 1, 10))
        time.sleep(0.05)
    return Ending("stopped in stage dodge", stopped=True)


def test_a_units_defect_ends_no_other_and_keeps_its_traceback():
    noticeboard, told = open_noticeboard(), Told()
    tasks = {"first": succeed, "broken": break_down, "dead": die, "last": succeed}
    units = {ray.remote(num_cpus=1, max_retries=0)(task).remote(): name for name, task in tasks.items()}
    endings = dict(follow(units, noticeboard, told, lambda: False))
    assert {name for name, how in told.endings.items() if how == "done"} == {"first", "last"}
    assert "its process died" in endings["dead"].failure
    with pytest.raises(ExceptionGroup, match=r"2 of 4 units failed: .*broken: met a defect") as caught:
        judge_endings(Path("out"), endings)
    (defect,) = caught.value.exceptions
    assert isinstance(defect, LookupError)
    assert "in break_down" in str(defect)


def test_a_stop_cancels_units_that_wait_and_lets_those_at_work_save():
    noticeboard, told = open_noticeboard(), Told()
    at_work = ray.remote(num_cpus=1)(work_until_told).remote(noticeboard, "at work")
    units = {at_work: "at work"}
    while "at work" not in ray.get(noticeboard.read.remote()):
        time.sleep(0.05)
    units |= {ray.remote(num_cpus=1)(work_until_told).remote(noticeboard, name): name for name in ("next", "later")}
    endings = dict(follow(units, noticeboard, told, lambda: True))
    assert told.endings == {"at work": "stopped in stage dodge", "next": "not begun", "later": "not begun"}
    with pytest.raises(Interrupted, match="soulsgraph reproduce --resume --out out"):
        judge_endings(Path("out"), endings)


def test_failures_are_told_before_a_stop_and_nothing_where_all_is_done():
    judge_endings(Path("out"), {"a": Ending(), "b": Ending()})
    with pytest.raises(SoulsGraphError, match="1 of 2 units failed: a: disk full"):
        judge_endings(Path("out"), {"a": Ending("disk full"), "b": Ending("not begun", stopped=True)})
