"""Jobs as Ray tasks: one to a processor, a stop begins no other, and a defect of one ends no other."""

import errno
import io
import os
import sys
import tempfile
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
    named_here,
    run_jobs,
    start_progress_actor,
    taken_in,
)
from soulsgraph.runs.run_folder import RunFolderError, take_lock
from soulsgraph_clusters.sessions.nodes import Mark, marked
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import ReadError, SoulsGraphError, UnavailableError
from soulsgraph_envs.core.files import FullDiskError


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
    passing = {"a": Ending("its process died"), "b": Ending(named_here(full))}
    with pytest.raises(UnavailableError, match=r"its process died; b: on .*full\.$"):
        check_endings(Path("out"), passing)
    with pytest.raises(SoulsGraphError) as stays:
        check_endings(Path("out"), {"c": Ending(refused), **passing})
    assert not isinstance(stays.value, UnavailableError)
    assert ".;" not in str(stays.value)


def this_node_id() -> str:
    return ray.get_runtime_context().get_node_id()


def test_a_unit_is_refused_where_not_even_the_drivers_node_sees_the_folder(tmp_path, actor):
    other = Mark(tmp_path, "of another folder at the same path")
    for there, mark in ((tmp_path, other), (tmp_path / "none", Mark(tmp_path / "none", "word"))):
        assert isinstance(do_job(there, COUNTING, actor, mark, this_node_id()).failure, SoulsGraphError)
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def apart(tmp_path, monkeypatch) -> Path:
    """Return the folder of temporary files of this process, which reads no mark: Ray's own processes do."""
    (private := tmp_path / "private").mkdir()
    monkeypatch.setattr(Mark, "problem", lambda mark, within_s=0.0: f"no such folder at {mark.folder}")
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    return private


def count_on(folder: Path, supervisor) -> None:
    """Count to three in a run of its own, one step a call: it stops after the first, and meets a defect in the next."""
    (kept := folder / "own" / "kept").parent.mkdir(exist_ok=True)
    assert (folder / "plan").read_text() == "to three"
    done = (kept.read_text() if kept.exists() else "") + "x"
    kept.write_text(done)
    (checkpoint := kept.parent / "checkpoints" / "count" / f"step-{len(done)}").mkdir(parents=True)
    (checkpoint / "state").write_text(done)
    if done == "x":
        raise Interruption("stopped at x")
    if done == "xx":
        raise LookupError("a defect of this unit")
    (folder / "three.json").write_text("3")


COUNTING = RayJob("counting", count_on, (), ("three.json",), ("plan",), "own", "checkpoints/*/step-*")


def counting(folder: Path, done: str = "") -> Path:
    """Return a folder with the plan of counting, so far as it was done."""
    (folder / "own").mkdir(parents=True)
    (folder / "plan").write_text("to three")
    (folder / "own" / "kept").write_text(done)
    return folder


def test_a_unit_on_a_private_disk_goes_on_from_what_came_back_after_a_stop_and_a_defect(tmp_path, actor, apart):
    folder = counting(tmp_path / "out")
    for so_far in ("x", "xx", "xxx"):
        with marked(folder) as mark:
            ending = do_job(folder, COUNTING, actor, mark, this_node_id())
        assert ending.stopped == (so_far == "x")
        assert (ending.defect is not None) == (so_far == "xx")
        if ending.defect is not None:
            assert "in count_on" in "".join(ending.defect.__notes__)
        assert bool(taken_in(folder, COUNTING, ending).failure) == (so_far != "xxx")
        assert (folder / "own" / "kept").read_text() == so_far
    assert (folder / "three.json").read_text() == "3"
    assert not (folder / "own" / "checkpoints").exists(), "nothing goes on from a unit that is done"
    assert [*apart.iterdir()] == [], "the temporary folder went with the unit"


def test_a_unit_is_done_when_the_driver_sees_what_its_node_wrote(tmp_path, actor, request):
    shared, folder = counting(tmp_path / "shared", "xx"), counting(tmp_path / "out", "xx")
    with marked(shared) as mark:
        ending = do_job(shared, COUNTING, actor, mark, this_node_id())
    assert not ending.failure
    assert not ending.files, "they are there already"
    assert not mark.file.exists()
    assert confirmed(shared, COUNTING, ending, 0.0) == ending
    request.getfixturevalue("apart")
    with marked(folder) as mark:
        ending = do_job(folder, COUNTING, actor, mark, this_node_id())
    assert not (folder / "three.json").exists()
    torn = replace(ending, files={**ending.files, "three.json": b"4"})
    for wrong in (confirmed(folder, COUNTING, ending, 0.0), taken_in(folder, COUNTING, torn, 0.0)):
        assert "three.json" in str(wrong.failure)
    assert not taken_in(folder, COUNTING, ending).failure
    assert (folder / "three.json").read_text() == "3"
    assert confirmed(folder, COUNTING, Ending(), 0.0).failure, "nothing was written"
    assert confirmed(folder, COUNTING, Ending("stopped", stopped=True), 0.0).stopped


def test_the_run_of_a_unit_in_which_another_command_writes_is_not_replaced(tmp_path):
    (kept := tmp_path / "own" / "kept").parent.mkdir()
    kept.write_text("adapted")
    lock = take_lock(kept.parent)
    ending = taken_in(tmp_path, COUNTING, Ending(files={"own/kept": b"x", "three.json": b"3"}))
    lock.close()
    assert isinstance(ending.failure, RunFolderError)
    assert kept.read_text() == "adapted"
    assert not (tmp_path / "three.json").exists()


def damaged(folder: Path, supervisor) -> None:
    raise SoulsGraphError(f"{folder / 'own'}: expected a run, found another.")


def test_why_a_unit_failed_names_the_drivers_folder_and_is_reported_where_nothing_of_it_can_be_read(
    tmp_path, actor, apart, monkeypatch
):
    def refuse(*_: object) -> None:
        raise ReadError("own", PermissionError(errno.EACCES, "Permission denied"))

    (tmp_path / "plan").write_text("to three")
    job = replace(COUNTING, work=damaged)
    for readable in (True, False):
        if not readable:
            monkeypatch.setattr("soulsgraph.runs.ray_runner.contents", refuse)
        with marked(tmp_path) as mark:
            ending = do_job(tmp_path, job, actor, mark, this_node_id())
        assert f"{tmp_path / 'own'}: expected a run" in str(ending.failure)


def test_of_a_unit_its_newest_checkpoint_travels_and_no_lock_and_nothing_of_others(tmp_path):
    for step, name in enumerate(("first/step-9", "second/step-1", "second/step-2")):
        (state := tmp_path / "own" / "checkpoints" / name / "state").parent.mkdir(parents=True)
        state.write_text(name)
        os.utime(state.parent, (step, step))
    for name in ("plan", "three.json", "own/.lock", "own/.unfinished-1/half", "own/library/weights", "other/file"):
        (file := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    always = {"plan", "three.json", "own/library/weights"}
    assert COUNTING.carried(tmp_path, done=True).keys() == always
    assert COUNTING.carried(tmp_path).keys() == always | {"own/checkpoints/second/step-2/state"}


def test_what_comes_back_replaces_the_units_own_folder_and_never_what_it_read(tmp_path):
    for name in ("plan", "own/before"):
        (file := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    COUNTING.take_in(tmp_path, {"plan": b"read", "own/a/new": b"new", "three.json": b"3"})
    names = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()}
    assert names == {"plan", "own/a/new", "three.json"}
    assert (tmp_path / "plan").read_text() == "before"


def test_a_disk_that_cannot_be_written_is_the_units_failure_in_one_line(tmp_path, actor, apart, monkeypatch):
    (tmp_path / "plan").write_text("to three")
    (tmp_path / "no-folder").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no-folder"))
    with marked(tmp_path) as mark:
        ending = do_job(tmp_path, COUNTING, actor, mark, this_node_id())
    assert "/no-folder" in str(ending.failure)
    ending = taken_in(tmp_path / "no-folder", COUNTING, Ending(files={"own/kept": b"x", "three.json": b"3"}))
    assert "/no-folder/own" in str(ending.failure)


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
