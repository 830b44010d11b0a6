"""Run the jobs of a study as Ray tasks, as many at a time as there are processors, on one display.

A job is a function with its arguments, and the files that it leaves: it is done when they are there. A node that does
not see the study's folder works in a temporary one: what a job needs of the folder is brought there, and what it left
comes back with its ending, through Ray's object store.
"""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console
from rich.progress import Progress

from soulsgraph.runs.progress import Interruption, ShownProgress, bars_on, interruptible, silence_advice
from soulsgraph.runs.run_folder import take_lock
from soulsgraph_clusters.sessions.nodes import Mark, answer_of, marked, nodes_without, other_folder, this_node
from soulsgraph_clusters.sessions.session import describe_wait
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError, reading
from soulsgraph_envs.core.files import WriteError, temporary_folder, whole_file, whole_folder, writing

#: Seconds between two reports of a job.
REPORT_EVERY_S = 0.5
#: A file system of a network may show what another machine wrote some seconds later.
SEEN_WITHIN_S = 10.0
#: How the temporary folder of a job begins, on a node that does not see the study's folder.
APART = "soulsgraph-unit-"
#: Why a job failed that met an error which no user can cause.
MET_A_DEFECT = "met a defect, shown when the others are done"
#: What a job is at before its first stage.
_BEGINS = "begins"


@dataclass(frozen=True)
class RayJob:
    """A job of a study: `work(folder, *arguments, supervisor)`, called on any node, leaves the `results`.

    `work` is importable everywhere. It goes on with what an earlier call left, and raises `Interruption` once the
    supervisor asks for a stop. `results` are files below the folder. So are the files that it `reads`, and the folder
    that is its `own`, in which nothing else writes; `checkpoints` is the pattern of folders in there from which it goes
    on.
    """

    name: str
    work: Callable[..., None]
    arguments: tuple[Any, ...]
    results: tuple[str, ...]
    reads: tuple[str, ...] = ()
    own: str = ""
    checkpoints: str = ""

    def done(self, folder: Path) -> bool:
        """Return whether every result is there."""
        return all((folder / name).is_file() for name in self.results)

    def written(self, folder: Path) -> dict[str, str]:
        """Return the digest of each result that is there, by the file's name below the folder."""
        files = {name: folder / name for name in self.results}
        return {name: sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file.is_file()}

    def carried(self, folder: Path, done: bool = False) -> dict[str, bytes]:
        """Return what another machine needs of the job, file by file, by its name below the folder.

        Of the checkpoints it is the newest alone, and of a job that is `done` none: nothing goes on from them. Raises
        ReadError.
        """
        own = contents(folder / self.own, self._needless(folder / self.own, done)) if self.own else {}
        with reading(folder):
            files = {name: folder / name for name in (*self.reads, *self.results)}
            others = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        return others | {f"{self.own}/{name}": content for name, content in own.items()}

    def _needless(self, own: Path, done: bool) -> list[Path]:
        saved = sorted(own.glob(self.checkpoints), key=lambda path: path.stat().st_mtime_ns) if self.checkpoints else []
        return saved if done else saved[:-1]

    def take_in(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write what `carried` returned elsewhere, but not what the job read, and results last.

        Raises:
            RunFolderError: if another process writes in the job's own folder; nothing is replaced then.
            WriteError: if it cannot be written.
        """
        inside, own_folder = f"{self.own}/", folder / self.own
        if own := {name.removeprefix(inside): files[name] for name in files if name.startswith(inside)}:
            replace_contents(own_folder, own)
        for name in (name for name in self.results if name in files):
            with whole_file(folder / name) as temporary:
                temporary.write_bytes(files[name])


def contents(folder: Path, without: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return what is in a folder, by the names of its files below it, but for locks and what killed writers left.

    These are hidden. Folders `without` are left out. Raises ReadError.
    """
    with reading(folder):
        files = {file.relative_to(folder): file for file in sorted(folder.rglob("*")) if file.is_file()}
        return {
            name.as_posix(): file.read_bytes()
            for name, file in files.items()
            if not any(part.startswith(".") for part in name.parts)
            and not any(file.is_relative_to(other) for other in without)
        }


def replace_contents(folder: Path, files: Mapping[str, bytes]) -> None:
    """Exchange a folder for one of these files.

    Raises:
        RunFolderError: if another process writes in it; nothing is replaced then.
        WriteError: if it cannot be written.
    """
    with writing(folder):
        # Whoever adapts the run meanwhile would lose what it writes.
        locked = take_lock(folder) if folder.is_dir() else nullcontext()
    with locked, whole_folder(folder, replace=True) as new:
        write_contents(new, files)


def write_contents(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder by their names."""
    for name, content in files.items():
        (file := folder / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


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
    """How a job ended: empty if it finished, else the reason; a `defect` keeps its traceback.

    Of one that finished `written` has the digests of its results, as the `node` that did it reads them. `files` are
    what a node that does not see the study's folder left, as `RayJob.carried` returns it.
    """

    failure: str | SoulsGraphError = ""
    stopped: bool = False
    defect: Exception | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def do_job(folder: Path, job: RayJob, actor: Any, mark: Mark | None = None, driver: str = "") -> Ending:
    """Do one job of a folder in a Ray task; errors that a user can cause come as a message.

    A node that does not read the mark in the folder works in a temporary one; the node `driver` has what it needs.
    """
    silence_advice()
    supervisor = RemoteSupervisor(actor, job.name)
    supervisor.report(JobProgress(_BEGINS, 0, 1))
    try:
        if supervisor.stop_requested():
            return Ending("not begun", stopped=True)
        # Nobody is waited for: all nodes were asked, and one that joined since may as well work for itself.
        if mark is None or not mark.problem(0.0):
            return _work(folder, job, supervisor)
        return _work_apart(mark, job, supervisor, driver)
    finally:
        supervisor.report(None)


def _work(folder: Path, job: RayJob, supervisor: RemoteSupervisor) -> Ending:
    try:
        job.work(folder, *job.arguments, supervisor)
        return Ending(written=job.written(folder), node=this_node())
    except Interruption as stop:
        return Ending(stop, stopped=True)
    except SoulsGraphError as error:
        return Ending(error)


def _work_apart(mark: Mark, job: RayJob, supervisor: RemoteSupervisor, driver: str) -> Ending:
    """Do a job in a temporary folder of this node, of which its ending has the files, however it ended.

    The folder goes with the task; one of a process that was killed is removed by the next job on that node.
    """
    with ExitStack() as stack:
        try:
            there = NodeAffinitySchedulingStrategy(driver, soft=False)
            asked = ray.remote(num_cpus=0)(_read_marked).options(scheduling_strategy=there).remote(mark, job)
            with writing(tempfile.gettempdir()):
                folder = stack.enter_context(temporary_folder(APART))
                write_contents(folder, answer_of(asked))
        except SoulsGraphError as error:
            return _named(Ending(error))
        try:
            ending = _work(folder, job, supervisor)
        except Exception as defect:
            # What was done before it comes back as well; the traceback would stay in this process.
            defect.add_note(traceback.format_exc())
            ending = Ending(MET_A_DEFECT, defect=defect)
        return _named(_with_files(folder, job, ending), folder, mark.folder)


def _with_files(folder: Path, job: RayJob, ending: Ending) -> Ending:
    try:
        return replace(ending, files=job.carried(folder, done=not ending.failure))
    except SoulsGraphError as error:
        # Why it failed before says more than that nothing of it can be read.
        return ending if ending.failure else Ending(error)


def _read_marked(mark: Mark, job: RayJob) -> dict[str, bytes]:
    """Return what is carried of a job from the marked folder; raises ClusterError if it is not that folder here."""
    if problem := mark.problem(0.0):
        raise other_folder(mark.folder, f"{problem} on {this_node()}")
    return job.carried(mark.folder)


def _named(ending: Ending, there: Path | None = None, here: Path | None = None) -> Ending:
    """Name this node in why a job failed; what was read in its temporary folder `there` lies in the driver's `here`."""
    failure = ending.failure
    if ending.stopped or not isinstance(failure, SoulsGraphError):
        return ending
    return replace(ending, failure=named_here(failure, there, here))


def named_here(error: SoulsGraphError, there: Path | None = None, here: Path | None = None) -> SoulsGraphError:
    """Return an error with this node's name, and the driver's folder `here` in the place of the temporary one.

    What could not be written could not be written there.
    """
    text = str(error)
    if there is not None and not isinstance(error, WriteError):
        text = text.replace(str(there), str(here))
    kind = UnavailableError if isinstance(error, UnavailableError) else SoulsGraphError
    return kind(f"on {this_node()}: {text}")


def taken_in(folder: Path, job: RayJob, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Write what a job left on a node that does not see the folder; return how it ended, as `confirmed` does."""
    try:
        job.take_in(folder, ending.files)
    except SoulsGraphError as error:
        return Ending(error)
    return confirmed(folder, job, replace(ending, files={}), within_s)


def confirmed(folder: Path, job: RayJob, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Return how a job ended, as a failure where it finished and this process does not see what its node wrote."""
    if ending.failure:
        return ending
    until_s = time.monotonic() + within_s
    while (here := job.written(folder)) != ending.written or not here:
        if time.monotonic() > until_s:
            others = [Path(name).name for name, digest in ending.written.items() if here.get(name) != digest]
            found = f"{', '.join(others) or 'nothing'} of {job.name} in another state than {ending.node} wrote it"
            return Ending(other_folder(folder, found))
        time.sleep(0.2)
    return ending


def run_jobs(folder: StudyFolder, jobs: Sequence[RayJob], console: Console) -> None:
    """Run the jobs whose results are not all there, assemble what they left after each, and show the progress.

    Needs a Ray session, unless nothing is left. A node that reads the mark in the folder works there, any other one in
    a temporary folder, whose files are written here when the job ends. A job is done when its results are here as its
    node wrote them.

    Raises:
        Interruption: if a stop was asked for; every running job has saved a checkpoint.
        SoulsGraphError: naming the jobs that failed; the others are done.
        ExceptionGroup: of the defects that jobs met; the others are done.
    """
    left = {job.name: job for job in jobs if not job.done(folder.path)}
    if not left:
        folder.assemble()
        return
    with marked(folder.path) as mark:
        if apart := nodes_without(mark):
            how = "what is done there is done in a temporary folder, and brought here when it ends"
            console.print(f"units: found {'; '.join(apart)}: {how}", highlight=False, soft_wrap=True)
        with folder.session():
            if waited := describe_wait({"CPU": 1.0}):
                console.print(f"units: {waited}", soft_wrap=True)
            actor, task = start_progress_actor(), ray.remote(num_cpus=1)(do_job)
            more = actor, mark, ray.get_runtime_context().get_node_id()
            tasks = {name: partial(task.remote, mark.folder, job, *more) for name, job in left.items()}
            endings: dict[str, Ending] = {}

            def confirm(name: str, ending: Ending) -> Ending:
                return taken_in(folder.path, left[name], ending)

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
        found = str(error).partition("\n")[0]
        return Ending(f"its process died ({found}); the unit resumes from its last checkpoint here, if any")
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
