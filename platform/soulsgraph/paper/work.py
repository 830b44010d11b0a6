"""Do the units of a reproduction as Ray tasks, as many at a time as there are processors, on one display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import ray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from soulsgraph.files import api_call
from soulsgraph.paper.rows import REFERENCE_ROWS, evaluate_references
from soulsgraph.paper.study import REFERENCES, ReproductionFolder, Unit
from soulsgraph.paper.unit import UnitJob, follow_episodes
from soulsgraph.progress import Interrupted, interruptible, silence_advice
from soulsgraph_envs.core.errors import SoulsGraphError

#: Seconds between two reports of a unit.
REPORT_EVERY_S = 0.5
#: Seconds between two lines of a unit where no bars can be drawn.
LINES_EVERY_S = 10.0


@dataclass(frozen=True)
class Standing:
    """The progress of a unit: its stage, the steps (or episodes) done and in all, and the last mean return."""

    stage: str
    done: int
    total: int
    mean_return: float | None = None


class Noticeboard:
    """The last progress of every unit, and whether they are to stop; lives in a Ray actor."""

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self._stopping = False

    def record(self, unit: str, standing: Standing | None) -> bool:
        """Record a unit's progress, None once it has ended; return whether it is to stop."""
        if standing is None:
            self._standings.pop(unit, None)
        else:
            self._standings[unit] = standing
        return self._stopping

    def read(self) -> Mapping[str, Standing]:
        """Return the last progress of the running units."""
        return dict(self._standings)

    def stop(self) -> None:
        """Stop every unit."""
        self._stopping = True


def open_noticeboard() -> Any:
    """Start the noticeboard's actor; it takes no processor from the units."""
    return ray.remote(num_cpus=0)(Noticeboard).remote()


class RemoteSupervisor:
    """Report a unit's stages to the noticeboard at intervals, so that it costs nothing."""

    def __init__(self, noticeboard: Any, unit: str) -> None:
        self._noticeboard, self._unit = noticeboard, unit
        self._stopping, self._next_s = False, 0.0

    def follow(self, name: str, total: int) -> RemoteProgress:
        """Return the progress of the stage that begins now."""
        self._next_s = 0.0
        return RemoteProgress(self, name, total)

    def stop_requested(self) -> bool:
        """Return whether the noticeboard's last answer was to stop."""
        return self._stopping

    def report(self, standing: Standing | None) -> None:
        """Report the unit's progress if the interval has passed; None, which removes the unit, is always reported."""
        if standing is not None and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_EVERY_S
        self._stopping = bool(ray.get(self._noticeboard.record.remote(self._unit, standing)))


class RemoteProgress:
    """A stage's progress, reported to the noticeboard."""

    def __init__(self, supervisor: RemoteSupervisor, stage: str, total: int) -> None:
        self._supervisor, self._stage, self._total = supervisor, stage, total
        self._mean_return: float | None = None

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        self._mean_return = self._mean_return if mean_return is None else mean_return
        self._supervisor.report(Standing(self._stage, steps, self._total, self._mean_return))


class UnitsDisplay(Protocol):
    """The display of running units."""

    def show(self, standings: Mapping[str, Standing]) -> None:
        """Show the progress of the running units."""
        ...

    def ended(self, unit: str, how: str) -> None:
        """Show that a unit has ended."""
        ...


class Paces:
    """The speed of each unit's stage, and when it will finish."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, tuple[str, int, float]] = {}

    def describe(self, unit: str, standing: Standing) -> str:
        """Describe a unit's stage in one line."""
        stage, first, since_s = self._began.get(unit, ("", 0, 0.0))
        if stage != standing.stage:
            stage, first, since_s = self._began[unit] = (standing.stage, standing.done, self._clock())
        elapsed_s = self._clock() - since_s
        rate = (standing.done - first) / elapsed_s if elapsed_s > 0.0 else 0.0
        left = str(timedelta(seconds=round((standing.total - standing.done) / rate))) if rate > 0.0 else "-:--:--"
        shown = "" if standing.mean_return is None else f"  return {standing.mean_return:.2f}"
        return f"{standing.stage}  {standing.done:,}/{standing.total:,}  {rate:,.0f}/s{shown}  left {left}"


#: Words an error's message for the reader.
Words = Callable[[str], str]


class _Bars:
    def __init__(self, progress: Progress, words: Words) -> None:
        self._progress, self._words, self._paces = progress, words, Paces()
        self._tasks: dict[str, TaskID] = {}

    def show(self, standings: Mapping[str, Standing]) -> None:
        for unit, standing in standings.items():
            if unit not in self._tasks:
                self._tasks[unit] = self._progress.add_task(unit, text="")
            text = self._paces.describe(unit, standing)
            self._progress.update(self._tasks[unit], completed=standing.done, total=standing.total, text=text)

    def ended(self, unit: str, how: str) -> None:
        if unit in self._tasks:
            self._progress.remove_task(self._tasks.pop(unit))
        self._progress.console.print(f"{unit}: {self._words(how)}", highlight=False, soft_wrap=True)


class _Lines:
    def __init__(self, console: Console, clock: Callable[[], float], words: Words) -> None:
        self._console, self._clock, self._words, self._paces = console, clock, words, Paces(clock)
        self._next_s = clock() + LINES_EVERY_S

    def show(self, standings: Mapping[str, Standing]) -> None:
        lines = [f"{unit}: {self._paces.describe(unit, standing)}" for unit, standing in sorted(standings.items())]
        if lines and self._clock() >= self._next_s:
            self._next_s = self._clock() + LINES_EVERY_S
            self._console.print("\n".join(lines), highlight=False, soft_wrap=True)

    def ended(self, unit: str, how: str) -> None:
        self._console.print(f"{unit}: {self._words(how)}", highlight=False, soft_wrap=True)


@contextmanager
def units_display(
    console: Console, clock: Callable[[], float] = time.monotonic, words: Words = str
) -> Iterator[UnitsDisplay]:
    """Return a console's display of units; a quiet console shows nothing."""
    if not console.is_terminal or console.quiet:
        yield _Lines(console, clock, words)
        return
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(20),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, words)


#: Submits a unit and returns Ray's reference to its ending.
Begin = Callable[[], Any]

#: Seconds between two looks at the units.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a unit ended: empty if it finished, else the reason; a `defect` keeps its traceback."""

    failure: str = ""
    stopped: bool = False
    defect: Exception | None = None


def do_unit(path: Path, unit: Unit, noticeboard: Any) -> Ending:
    """Do one unit in a Ray task; errors that a user can cause come back as a message."""

    def work(folder: ReproductionFolder, supervisor: RemoteSupervisor) -> None:
        UnitJob(folder, unit, folder.run(unit), supervisor).do()

    return _supervised(path, noticeboard, unit.name, work)


def do_references(path: Path, noticeboard: Any) -> Ending:
    """Evaluate the scripted references in a Ray task; errors that a user can cause come back as a message."""

    def work(folder: ReproductionFolder, supervisor: RemoteSupervisor) -> None:
        episodes = folder.study.episodes
        evaluated = follow_episodes(supervisor, "table", REFERENCE_ROWS * episodes)
        folder.record_references(lambda: {"rows": evaluate_references(episodes, evaluated)})

    return _supervised(path, noticeboard, REFERENCES, work)


def _supervised(
    path: Path, noticeboard: Any, name: str, work: Callable[[ReproductionFolder, RemoteSupervisor], None]
) -> Ending:
    silence_advice()
    supervisor = RemoteSupervisor(noticeboard, name)
    supervisor.report(Standing("begins", 0, 1))
    if supervisor.stop_requested():
        supervisor.report(None)
        return Ending("not begun", stopped=True)
    try:
        work(ReproductionFolder.open(path), supervisor)
    except Interrupted as stop:
        return Ending(str(stop), stopped=True)
    except SoulsGraphError as error:
        return Ending(str(error))
    finally:
        supervisor.report(None)
    return Ending()


def do_units(folder: ReproductionFolder, console: Console, words: Words = str) -> None:
    """Do the rest of every unit, assemble the records after each, and show the progress.

    Needs a Ray session whose nodes all see the folder under the same path, unless nothing is left. `words` changes the
    text of a unit's error before it is shown.

    Raises:
        Interrupted: if a stop was asked for; every running unit has saved a checkpoint.
        SoulsGraphError: naming the units that failed; the others are done.
        ExceptionGroup: of the defects that units met; the others are done.
    """
    if not folder.left:
        folder.assemble()
        return
    began_s = time.monotonic()
    folder.begin_session()
    noticeboard = open_noticeboard()
    endings: dict[str, Ending] = {}
    try:
        with interruptible() as interrupted, units_display(console, words=words) as display:
            for name, ending in follow(_beginnings(folder, noticeboard), noticeboard, display, interrupted):
                endings[name] = ending
                folder.assemble()
    finally:
        folder.add_wall_time(time.monotonic() - began_s)
    check_endings(folder.path, endings)


def _beginnings(folder: ReproductionFolder, noticeboard: Any) -> dict[str, Begin]:
    """Return the function that starts each unit of which something is left, by its name."""
    path = folder.path.resolve()
    unit_task, references_task = (ray.remote(num_cpus=1)(function) for function in (do_unit, do_references))
    units = {unit.name: partial(unit_task.remote, path, unit, noticeboard) for unit in folder.study.units()}
    every = units | {REFERENCES: partial(references_task.remote, path, noticeboard)}
    return {name: every[name] for name in folder.left}


def follow(
    units: Mapping[str, Begin], noticeboard: Any, display: UnitsDisplay, interrupted: Callable[[], bool]
) -> Iterator[tuple[str, Ending]]:
    """Do the units, one per processor, show the running ones and yield each as it ends.

    Once interrupted, the running ones are asked to stop and the waiting ones are not started.
    """
    waiting, at_work, stopping = dict(units), dict[Any, str](), False
    while waiting or at_work:
        if interrupted() and not stopping:
            stopping = True
            ray.get(noticeboard.stop.remote())
        # Ray takes a blocked task's processor for free and would begin all units before long.
        for name in [*waiting] if stopping else [*waiting][: max(_processors() - len(at_work), 0)]:
            begin = waiting.pop(name)
            if stopping:
                yield name, _shown(display, name, Ending("not begun", stopped=True))
            else:
                at_work[begin()] = name
        ended = ray.wait(list(at_work), num_returns=1, timeout=_LOOK_EVERY_S)[0] if at_work else []
        display.show(ray.get(noticeboard.read.remote()))
        for reference in ended:
            name = at_work.pop(reference)
            yield name, _shown(display, name, _ending(reference))


def _processors() -> int:
    return max(int(ray.cluster_resources().get("CPU", 1)), 1)


def _shown(display: UnitsDisplay, name: str, ending: Ending) -> Ending:
    display.ended(name, ending.failure or "done")
    return ending


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
    """Raise the error of unfinished units: defects first, then failures, then a stop."""
    failed = {name: ending for name, ending in endings.items() if ending.failure and not ending.stopped}
    reasons = "; ".join(f"{name}: {ending.failure}" for name, ending in failed.items())
    summary = f"{folder}: {len(failed)} of {len(endings)} units failed: {reasons}"
    defects = [ending.defect for ending in failed.values() if ending.defect is not None]
    if defects:
        raise ExceptionGroup(summary, defects)
    if failed:
        raise SoulsGraphError(summary)
    if any(ending.stopped for ending in endings.values()):
        raise Interrupted(f"stopped; every unit saved where it is. Go on with: {api_call('do_units', folder=folder)}")
