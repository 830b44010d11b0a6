"""Run the jobs of a study as Ray tasks, as many at a time as there are processors, on one display.

A job is a function with its arguments, and the files that it leaves in the study's folder, which every node sees: it is
done when they are there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console
from rich.progress import Progress

from soulsgraph.runs.progress import Interruption, ShownProgress, bars_on, interruptible, silence_advice
from soulsgraph_clusters.sessions.head import ClusterError
from soulsgraph_clusters.sessions.nodes import SEEN_WITHIN_S, Probe, describe_loss, probed
from soulsgraph_clusters.sessions.session import describe_wait
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError

#: Seconds between two reports of a job.
REPORT_EVERY_S = 0.5
#: Why a job failed that met an error which no user can cause.
MET_A_DEFECT = "met a defect, shown when the others are done"
#: What a job is at before its first stage.
_BEGINS = "begins"


@dataclass(frozen=True)
class RayJob:
    """A job of a study: `work(folder, *arguments, supervisor)`, called on any node, leaves the `results`.

    `work` is importable everywhere. It goes on with what an earlier call left, and raises `Interruption` once the
    supervisor asks for a stop. `results` are files below the folder.
    """

    name: str
    work: Callable[..., None]
    arguments: tuple[Any, ...]
    results: tuple[str, ...]

    def done(self, folder: Path) -> bool:
        """Return whether every result is there."""
        return all((folder / name).is_file() for name in self.results)


class StudyFolder(Protocol):
    """The folder of a study whose jobs are run."""

    path: Path

    def session(self) -> AbstractContextManager[None]:
        """Record the time in which jobs are run."""

    def assemble(self) -> None:
        """Put together what the jobs have left so far."""


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
    """Start the actor of the jobs' progress on the driver's node; it takes no processor from the jobs."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(ProgressActor).remote()


class RemoteSupervisor:
    """Report a job's stages to the actor at intervals, so that it costs nothing."""

    def __init__(self, actor: Any, job: str) -> None:
        self._actor, self._job = actor, job
        self._stopping, self._next_s = False, 0.0
        self._progress = JobProgress(_BEGINS, 0, 1)

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


class JobsDisplay:
    """Show the running jobs, each as a stage of its own is shown."""

    def __init__(self, bars: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars, self._clock = bars, clock
        self._shown: dict[str, tuple[str, ShownProgress]] = {}

    def show(self, running: Mapping[str, JobProgress]) -> None:
        """Show the progress of the running jobs."""
        for job, progress in sorted(running.items()):
            stage, shown = self._shown.get(job, ("", None))
            if shown is None or stage != progress.stage:
                if stage and progress.stage == _BEGINS:
                    self._print(f"{job}: its process or node was lost; it resumes from its last checkpoint, if any")
                self._remove(job)
                title = f"{job}: {progress.stage}"
                shown = ShownProgress(self._bars, title, progress.total, progress.done, "steps", self._clock)
                self._shown[job] = progress.stage, shown
            shown.update(progress.done, progress.mean_return)

    def ended(self, job: str, how: str | SoulsGraphError) -> None:
        """Show that a job has ended."""
        self._remove(job)
        self._print(f"{job}: {how}")

    def _remove(self, job: str) -> None:
        if job in self._shown:
            self._shown.pop(job)[1].remove()

    def _print(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, soft_wrap=True)


#: Seconds between two looks at the jobs.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a job ended: empty if it finished, else the reason; a `defect` keeps its traceback."""

    failure: str | SoulsGraphError = ""
    stopped: bool = False
    defect: Exception | None = None


def do_job(folder: Path, job: RayJob, actor: Any, probe: Probe | None = None) -> Ending:
    """Do one job of a folder in a Ray task; errors that a user can cause come as a message.

    A node that joined after all were asked answers the `probe` now.
    """
    silence_advice()
    supervisor = RemoteSupervisor(actor, job.name)
    supervisor.report(JobProgress(_BEGINS, 0, 1))
    try:
        if supervisor.stop_requested():
            return Ending("not begun", stopped=True)
        if probe and (problem := probe.problem()):
            return Ending(ClusterError(f"found {problem} on {socket.gethostname()}"))
        job.work(folder, *job.arguments, supervisor)
        return Ending()
    except Interruption as stop:
        return Ending(stop, stopped=True)
    except SoulsGraphError as error:
        return Ending(error)
    finally:
        supervisor.report(None)


def confirmed(folder: Path, job: RayJob, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Return how a job ended, as a failure where it finished and this process does not see what it left."""
    until_s = time.monotonic() + within_s
    while not (ending.failure or job.done(folder)):
        if time.monotonic() > until_s:
            return Ending(ClusterError(f"{folder}: expected its results, found that its node left none there."))
        time.sleep(0.2)
    return ending


def run_jobs(folder: StudyFolder, jobs: Sequence[RayJob], console: Console) -> None:
    """Run the jobs whose results are not all there, assemble what they left after each, and show the progress.

    Needs a Ray session, unless nothing is left, and a folder that every node sees.

    Raises:
        ClusterError: if a node does not see the folder, or runs other code.
        Interruption: if a stop was asked for; every running job has saved a checkpoint.
        SoulsGraphError: naming the jobs that failed; the others are done.
        ExceptionGroup: of the defects that jobs met; the others are done.
    """
    left = {job.name: job for job in jobs if not job.done(folder.path)}
    if not left:
        folder.assemble()
        return
    with probed(folder.path) as probe, folder.session():
        if waited := describe_wait({"CPU": 1.0}):
            console.print(f"units: {waited}", soft_wrap=True)
        actor, task = start_progress_actor(), ray.remote(num_cpus=1)(do_job)
        tasks = {name: partial(task.remote, folder.path.resolve(), job, actor, probe) for name, job in left.items()}
        endings: dict[str, Ending] = {}

        def confirm(name: str, ending: Ending) -> Ending:
            return confirmed(folder.path, left[name], ending)

        with interruptible() as interrupted, bars_on(console) as bars:
            for name, ending in follow(tasks, actor, JobsDisplay(bars), interrupted, confirm):
                endings[name] = ending
                folder.assemble()
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
        return Ending(MET_A_DEFECT, defect=defect)
    except ray.exceptions.RayError as error:
        return Ending(f"{describe_loss(error)}; the unit resumes from its last checkpoint, if any")
    return ending


def check_endings(folder: Path, endings: Mapping[str, Ending]) -> None:
    """Raise the error of unfinished jobs: defects first, then failures, then a stop.

    Where each failed by what may be over by itself, as a process that died, so may this.
    """
    failed = {name: ending for name, ending in endings.items() if ending.failure and not ending.stopped}
    reasons = "; ".join(f"{name}: {ending.failure}".rstrip(".") for name, ending in failed.items())
    summary = f"{folder}: {len(failed)} of {len(endings)} units failed: {reasons}."
    defects = [ending.defect for ending in failed.values() if ending.defect is not None]
    if defects:
        raise ExceptionGroup(summary, defects)
    if failed:
        passes = all(isinstance(ending.failure, str | UnavailableError) for ending in failed.values())
        raise (UnavailableError if passes else SoulsGraphError)(summary)
    if any(ending.stopped for ending in endings.values()):
        raise Interruption("stopped; every unit saved where it is")
