"""Do the jobs of a reproduction as Ray tasks, as many at a time as there are processors, on one display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn

from soulsgraph.paper.seed_job import do_rest
from soulsgraph.paper.study import ReproductionFolder, SeedJob
from soulsgraph.runs.progress import Interruption, describe_pace, draws, interruptible, silence_advice
from soulsgraph_clusters.sessions.nodes import Mark, check_folder, marked, other_folder, this_node
from soulsgraph_clusters.sessions.session import describe_wait
from soulsgraph_envs.core.errors import Remedy, SoulsGraphError

#: Seconds between two reports of a job.
REPORT_EVERY_S = 0.5
#: Seconds between two lines of a job where no bars can be drawn.
LINES_EVERY_S = 10.0
#: A file system of a network may show what another machine wrote some seconds later.
SEEN_WITHIN_S = 10.0


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job: its stage, the steps (or episodes) done and in all, and the last mean return."""

    stage: str
    done: int
    total: int
    mean_return: float | None = None


class ProgressActor:
    """The last progress of every job, and whether they are to stop; lives in a Ray actor."""

    def __init__(self) -> None:
        self._running: dict[str, JobProgress] = {}
        self._stopping = False

    def record(self, job: str, progress: JobProgress | None) -> bool:
        """Record a job's progress, None once it has ended; return whether it is to stop."""
        if progress is None:
            self._running.pop(job, None)
        else:
            self._running[job] = progress
        return self._stopping

    def read(self) -> Mapping[str, JobProgress]:
        """Return the last progress of the running jobs."""
        return dict(self._running)

    def stop(self) -> None:
        """Stop every job."""
        self._stopping = True


def start_progress_actor() -> Any:
    """Start the actor of the jobs' progress; it takes no processor from the jobs."""
    return ray.remote(num_cpus=0)(ProgressActor).remote()


class RemoteSupervisor:
    """Report a job's stages to the actor at intervals, so that it costs nothing."""

    def __init__(self, actor: Any, job: str) -> None:
        self._actor, self._job = actor, job
        self._stopping, self._next_s = False, 0.0
        self._progress = JobProgress("begins", 0, 1)

    def follow(self, name: str, total: int) -> RemoteSupervisor:
        """Take what `update` reports from now on for the progress of this stage."""
        self._progress, self._next_s = JobProgress(name, 0, total), 0.0
        return self

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        last = self._progress.mean_return if mean_return is None else mean_return
        self._progress = replace(self._progress, done=steps, mean_return=last)
        self.report(self._progress)

    def stop_requested(self) -> bool:
        """Return whether the actor's last answer was to stop."""
        return self._stopping

    def report(self, progress: JobProgress | None) -> None:
        """Report the job's progress if the interval has passed; None, which removes the job, is always reported."""
        if progress is not None and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_EVERY_S
        self._stopping = bool(ray.get(self._actor.record.remote(self._job, progress)))


#: Words an error's message for the reader.
Words = Callable[[str | SoulsGraphError], str]


class JobsDisplay:
    """Show the running jobs: by a bar each in a terminal, else by a line each now and then."""

    def __init__(self, console: Console, clock: Callable[[], float], words: Words) -> None:
        self._console, self._clock, self._words = console, clock, words
        self._next_s = clock() + LINES_EVERY_S
        self._began: dict[str, tuple[str, int, float]] = {}
        self._tasks: dict[str, TaskID] = {}
        columns = "{task.description:<16}", BarColumn(20), TaskProgressColumn(), "{task.fields[text]}"
        self.bars = Progress(*columns, console=console, disable=not draws(console))

    def show(self, running: Mapping[str, JobProgress]) -> None:
        """Show the progress of the running jobs."""
        texts = {job: self._describe(job, progress) for job, progress in sorted(running.items())}
        for job, text in texts.items():
            if job not in self._tasks:
                self._tasks[job] = self.bars.add_task(job, text="")
            done, total = running[job].done, running[job].total
            self.bars.update(self._tasks[job], completed=done, total=total, text=text)
        if self.bars.disable and texts and self._clock() >= self._next_s:
            self._next_s = self._clock() + LINES_EVERY_S
            self._print("\n".join(f"{job}: {text}" for job, text in texts.items()))

    def ended(self, job: str, how: str | SoulsGraphError) -> None:
        """Show that a job has ended."""
        if job in self._tasks:
            self.bars.remove_task(self._tasks.pop(job))
        self._print(f"{job}: {self._words(how)}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _describe(self, job: str, progress: JobProgress) -> str:
        stage, first, since_s = self._began.get(job, ("", 0, 0.0))
        if stage != progress.stage:
            stage, first, since_s = self._began[job] = (progress.stage, progress.done, self._clock())
        done, elapsed_s = progress.done, self._clock() - since_s
        return f"{stage}  {describe_pace(done, progress.total, done - first, elapsed_s, progress.mean_return)}"


@contextmanager
def jobs_display(
    console: Console, clock: Callable[[], float] = time.monotonic, words: Words = str
) -> Iterator[JobsDisplay]:
    """Return a console's display of jobs; a quiet console shows nothing."""
    display = JobsDisplay(console, clock, words)
    # A bar that is disabled prints an empty line as it ends in some releases of rich.
    with nullcontext() if display.bars.disable else display.bars:
        yield display


#: Seconds between two looks at the jobs.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a job ended: empty if it finished, else the reason; a `defect` keeps its traceback.

    Of one that finished `written` has the digests of its records, as the `node` that did it reads them.
    """

    failure: str | SoulsGraphError = ""
    stopped: bool = False
    defect: Exception | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    node: str = ""


def do_unit(path: Path, job: SeedJob, actor: Any, mark: Mark | None = None) -> Ending:
    """Do one job of a folder, which bears the mark, in a Ray task; errors that a user can cause come as a message."""
    silence_advice()
    supervisor = RemoteSupervisor(actor, job.name)
    supervisor.report(JobProgress("begins", 0, 1))
    try:
        if supervisor.stop_requested():
            return Ending("not begun", stopped=True)
        # A node may have joined since all were asked.
        if mark is not None and (found := mark.problem()):
            return Ending(other_folder(path, f"{found} on {this_node()}"))
        folder = ReproductionFolder.open(path)
        do_rest(folder, job, supervisor)
        return Ending(written=folder.written(job), node=this_node())
    except Interruption as stop:
        return Ending(stop, stopped=True)
    except SoulsGraphError as error:
        return Ending(error)
    finally:
        supervisor.report(None)


def confirmed(folder: ReproductionFolder, job: SeedJob, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Return how a job ended, as a failure where it finished and this process does not see what its node wrote."""
    if ending.failure:
        return ending
    until_s = time.monotonic() + within_s
    while (here := folder.written(job)) != ending.written or not here:
        if time.monotonic() > until_s:
            others = [name for name in ending.written or job.pieces if here.get(name) != ending.written.get(name)]
            found = f"{', '.join(others) or 'nothing'} of {job.name} in another state than {ending.node} wrote it"
            return Ending(other_folder(folder.path, found))
        time.sleep(0.2)
    return ending


def do_units(folder: ReproductionFolder, console: Console, words: Words = str) -> None:
    """Do the rest of every job, assemble the records after each, and show the progress.

    Needs a Ray session whose nodes all see the folder under the same path, unless nothing is left: each reads a mark
    there before it works, and a job is done when its records are here as its node wrote them. `words` changes the text
    of a job's error before it is shown.

    Raises:
        ClusterError: if a node sees another folder; nothing is done then.
        Interruption: if a stop was asked for; every running job has saved a checkpoint.
        SoulsGraphError: naming the jobs that failed; the others are done.
        ExceptionGroup: of the defects that jobs met; the others are done.
    """
    if unkeyed := folder.unkeyed:
        note = f"{len(unkeyed)} records do not say by what plan: an earlier version wrote them; taken for this one's"
        console.print(note, highlight=False, soft_wrap=True)
    if not folder.left:
        folder.assemble()
        return
    began_s, jobs = time.monotonic(), {job.name: job for job in folder.left}
    with marked(folder.path) as mark:
        check_folder(mark)
        folder.begin_session()
        if waited := describe_wait({"CPU": 1.0}):
            console.print(f"units: {waited}", soft_wrap=True)
        actor, task = start_progress_actor(), ray.remote(num_cpus=1)(do_unit)
        tasks = {name: partial(task.remote, mark.folder, job, actor, mark) for name, job in jobs.items()}
        endings: dict[str, Ending] = {}

        def confirm(name: str, ending: Ending) -> Ending:
            return confirmed(folder, jobs[name], ending)

        try:
            with interruptible() as interrupted, jobs_display(console, words=words) as display:
                for name, ending in follow(tasks, actor, display, interrupted, confirm):
                    endings[name] = ending
                    folder.assemble()
        finally:
            folder.add_wall_time(time.monotonic() - began_s)
    check_endings(folder.path, endings)


def follow(
    jobs: Mapping[str, Callable[[], Any]],
    actor: Any,
    display: JobsDisplay,
    interrupted: Callable[[], bool],
    confirm: Callable[[str, Ending], Ending] = lambda name, ending: ending,
) -> Iterator[tuple[str, Ending]]:
    """Do the jobs, one per processor, show the running ones and yield each as it ends.

    Calling a job submits it and returns Ray's reference to its ending; `confirm` checks that before it is reported.
    Once interrupted, the running ones are asked to stop and the waiting ones are not started.
    """
    waiting, at_work, stopping = dict(jobs), dict[Any, str](), False
    while waiting or at_work:
        endings: dict[str, Ending] = {}
        if interrupted() and not stopping:
            stopping = True
            ray.get(actor.stop.remote())
            endings, waiting = dict.fromkeys(waiting, Ending("not begun", stopped=True)), {}
        # Ray takes a blocked task's processor for free and would begin all jobs before long.
        free = max(int(ray.cluster_resources().get("CPU", 1)), 1) - len(at_work)
        for name in [*waiting][: max(free, 0)]:
            at_work[waiting.pop(name)()] = name
        ended = ray.wait(list(at_work), num_returns=1, timeout=_LOOK_EVERY_S)[0] if at_work else []
        display.show(ray.get(actor.read.remote()))
        for reference in ended:
            name = at_work.pop(reference)
            endings[name] = confirm(name, _ending(reference))
        for name, ending in endings.items():
            display.ended(name, ending.failure or "done")
            yield name, ending


def _ending(reference: Any) -> Ending:
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.RayTaskError as defect:
        return Ending("met a defect, shown when the others are done", defect=defect)
    except ray.exceptions.RayError as error:
        found = str(error).partition("\n")[0]
        again = "the unit goes on from its last checkpoint with `ReproductionFolder.open`"
        return Ending(f"its process died ({found}); {again}")
    return ending


def check_endings(folder: Path, endings: Mapping[str, Ending]) -> None:
    """Raise the error of unfinished jobs: defects first, then failures, then a stop."""
    failed = {name: ending for name, ending in endings.items() if ending.failure and not ending.stopped}
    reasons = "; ".join(f"{name}: {ending.failure}" for name, ending in failed.items())
    summary = f"{folder}: {len(failed)} of {len(endings)} units failed: {reasons}"
    defects = [ending.defect for ending in failed.values() if ending.defect is not None]
    if defects:
        raise ExceptionGroup(summary, defects)
    if failed:
        errors = [ending.failure for ending in failed.values() if isinstance(ending.failure, SoulsGraphError)]
        raise SoulsGraphError(summary, repeated=errors)
    if any(ending.stopped for ending in endings.values()):
        remedy = Remedy("Go on with: ", "do_units", folder=folder)
        raise Interruption("stopped; every unit saved where it is. ", remedy)
