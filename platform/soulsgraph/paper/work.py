"""Do the units of a reproduction as Ray tasks, as many at a time as there are processors, on one display."""

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

from soulsgraph.paper.study import ReproductionFolder, Unit
from soulsgraph.paper.unit import do_rest
from soulsgraph.results.files import api_call
from soulsgraph.runs.progress import Interruption, describe_pace, draws, interruptible, silence_advice
from soulsgraph_clusters.sessions.session import Mark, check_folder, describe_wait, marked, other_folder, this_node
from soulsgraph_envs.core.errors import SoulsGraphError

#: Seconds between two reports of a unit.
REPORT_EVERY_S = 0.5
#: Seconds between two lines of a unit where no bars can be drawn.
LINES_EVERY_S = 10.0
#: A file system of a network may show what another machine wrote some seconds later.
SEEN_WITHIN_S = 10.0


@dataclass(frozen=True)
class UnitProgress:
    """The progress of a unit: its stage, the steps (or episodes) done and in all, and the last mean return."""

    stage: str
    done: int
    total: int
    mean_return: float | None = None


class Noticeboard:
    """The last progress of every unit, and whether they are to stop; lives in a Ray actor."""

    def __init__(self) -> None:
        self._standings: dict[str, UnitProgress] = {}
        self._stopping = False

    def record(self, unit: str, standing: UnitProgress | None) -> bool:
        """Record a unit's progress, None once it has ended; return whether it is to stop."""
        if standing is None:
            self._standings.pop(unit, None)
        else:
            self._standings[unit] = standing
        return self._stopping

    def read(self) -> Mapping[str, UnitProgress]:
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
        self._standing = UnitProgress("begins", 0, 1)

    def follow(self, name: str, total: int) -> RemoteSupervisor:
        """Take what `update` reports from now on for the progress of this stage."""
        self._standing, self._next_s = UnitProgress(name, 0, total), 0.0
        return self

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        last = self._standing.mean_return if mean_return is None else mean_return
        self._standing = replace(self._standing, done=steps, mean_return=last)
        self.report(self._standing)

    def stop_requested(self) -> bool:
        """Return whether the noticeboard's last answer was to stop."""
        return self._stopping

    def report(self, standing: UnitProgress | None) -> None:
        """Report the unit's progress if the interval has passed; None, which removes the unit, is always reported."""
        if standing is not None and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_EVERY_S
        self._stopping = bool(ray.get(self._noticeboard.record.remote(self._unit, standing)))


#: Words an error's message for the reader.
Words = Callable[[str], str]


class UnitsDisplay:
    """Show the running units: by a bar each in a terminal, else by a line each now and then."""

    def __init__(self, console: Console, clock: Callable[[], float], words: Words) -> None:
        self._console, self._clock, self._words = console, clock, words
        self._next_s = clock() + LINES_EVERY_S
        self._began: dict[str, tuple[str, int, float]] = {}
        self._tasks: dict[str, TaskID] = {}
        columns = "{task.description:<16}", BarColumn(20), TaskProgressColumn(), "{task.fields[text]}"
        self.bars = Progress(*columns, console=console, disable=not draws(console))

    def show(self, standings: Mapping[str, UnitProgress]) -> None:
        """Show the progress of the running units."""
        texts = {unit: self._describe(unit, standing) for unit, standing in sorted(standings.items())}
        for unit, text in texts.items():
            if unit not in self._tasks:
                self._tasks[unit] = self.bars.add_task(unit, text="")
            done, total = standings[unit].done, standings[unit].total
            self.bars.update(self._tasks[unit], completed=done, total=total, text=text)
        if self.bars.disable and texts and self._clock() >= self._next_s:
            self._next_s = self._clock() + LINES_EVERY_S
            self._print("\n".join(f"{unit}: {text}" for unit, text in texts.items()))

    def ended(self, unit: str, how: str) -> None:
        """Show that a unit has ended."""
        if unit in self._tasks:
            self.bars.remove_task(self._tasks.pop(unit))
        self._print(f"{unit}: {self._words(how)}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _describe(self, unit: str, standing: UnitProgress) -> str:
        stage, first, since_s = self._began.get(unit, ("", 0, 0.0))
        if stage != standing.stage:
            stage, first, since_s = self._began[unit] = (standing.stage, standing.done, self._clock())
        done, elapsed_s = standing.done, self._clock() - since_s
        return f"{stage}  {describe_pace(done, standing.total, done - first, elapsed_s, standing.mean_return)}"


@contextmanager
def units_display(
    console: Console, clock: Callable[[], float] = time.monotonic, words: Words = str
) -> Iterator[UnitsDisplay]:
    """Return a console's display of units; a quiet console shows nothing."""
    display = UnitsDisplay(console, clock, words)
    # A bar that is disabled prints an empty line as it ends in some releases of rich.
    with nullcontext() if display.bars.disable else display.bars:
        yield display


#: Seconds between two looks at the units.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a unit ended: empty if it finished, else the reason; a `defect` keeps its traceback.

    Of one that finished `written` has the digests of its records, as the `node` that did it reads them.
    """

    failure: str = ""
    stopped: bool = False
    defect: Exception | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    node: str = ""


def do_unit(path: Path, unit: Unit, noticeboard: Any, mark: Mark | None = None) -> Ending:
    """Do one unit of a folder, which bears the mark, in a Ray task; errors that a user can cause come as a message."""
    silence_advice()
    supervisor = RemoteSupervisor(noticeboard, unit.name)
    supervisor.report(UnitProgress("begins", 0, 1))
    try:
        if supervisor.stop_requested():
            return Ending("not begun", stopped=True)
        # A node may have joined since all were asked.
        if mark is not None and (found := mark.problem()):
            return Ending(str(other_folder(path, f"{found} on {this_node()}")))
        folder = ReproductionFolder.open(path)
        do_rest(folder, unit, supervisor)
        return Ending(written=folder.written(unit), node=this_node())
    except Interruption as stop:
        return Ending(str(stop), stopped=True)
    except SoulsGraphError as error:
        return Ending(str(error))
    finally:
        supervisor.report(None)


def confirmed(folder: ReproductionFolder, unit: Unit, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Return how a unit ended, as a failure where it finished and this process does not see what its node wrote."""
    if ending.failure:
        return ending
    until_s = time.monotonic() + within_s
    while (here := folder.written(unit)) != ending.written or not here:
        if time.monotonic() > until_s:
            others = [name for name in ending.written or unit.pieces if here.get(name) != ending.written.get(name)]
            found = f"{', '.join(others) or 'nothing'} of {unit.name} in another state than {ending.node} wrote it"
            return Ending(str(other_folder(folder.path, found)))
        time.sleep(0.2)
    return ending


def do_units(folder: ReproductionFolder, console: Console, words: Words = str) -> None:
    """Do the rest of every unit, assemble the records after each, and show the progress.

    Needs a Ray session whose nodes all see the folder under the same path, unless nothing is left: each reads a mark
    there before it works, and a unit is done when its records are here as its node wrote them. `words` changes the text
    of a unit's error before it is shown.

    Raises:
        ClusterError: if a node sees another folder; nothing is done then.
        Interruption: if a stop was asked for; every running unit has saved a checkpoint.
        SoulsGraphError: naming the units that failed; the others are done.
        ExceptionGroup: of the defects that units met; the others are done.
    """
    if unkeyed := folder.unkeyed:
        note = f"{len(unkeyed)} records do not say by what plan: an earlier version wrote them; taken for this one's"
        console.print(note, highlight=False, soft_wrap=True)
    if not folder.left:
        folder.assemble()
        return
    began_s, units = time.monotonic(), {unit.name: unit for unit in folder.left}
    with marked(folder.path) as mark:
        check_folder(mark)
        folder.begin_session()
        if waited := describe_wait({"CPU": 1.0}):
            console.print(f"units: {waited}", soft_wrap=True)
        noticeboard, task = open_noticeboard(), ray.remote(num_cpus=1)(do_unit)
        tasks = {name: partial(task.remote, mark.folder, unit, noticeboard, mark) for name, unit in units.items()}
        endings: dict[str, Ending] = {}

        def confirm(name: str, ending: Ending) -> Ending:
            return confirmed(folder, units[name], ending)

        try:
            with interruptible() as interrupted, units_display(console, words=words) as display:
                for name, ending in follow(tasks, noticeboard, display, interrupted, confirm):
                    endings[name] = ending
                    folder.assemble()
        finally:
            folder.add_wall_time(time.monotonic() - began_s)
    check_endings(folder.path, endings)


def follow(
    units: Mapping[str, Callable[[], Any]],
    noticeboard: Any,
    display: UnitsDisplay,
    interrupted: Callable[[], bool],
    confirm: Callable[[str, Ending], Ending] = lambda name, ending: ending,
) -> Iterator[tuple[str, Ending]]:
    """Do the units, one per processor, show the running ones and yield each as it ends.

    Calling a unit submits it and returns Ray's reference to its ending; `confirm` checks that before it is reported.
    Once interrupted, the running ones are asked to stop and the waiting ones are not started.
    """
    waiting, at_work, stopping = dict(units), dict[Any, str](), False
    while waiting or at_work:
        endings: dict[str, Ending] = {}
        if interrupted() and not stopping:
            stopping = True
            ray.get(noticeboard.stop.remote())
            endings, waiting = dict.fromkeys(waiting, Ending("not begun", stopped=True)), {}
        # Ray takes a blocked task's processor for free and would begin all units before long.
        free = max(int(ray.cluster_resources().get("CPU", 1)), 1) - len(at_work)
        for name in [*waiting][: max(free, 0)]:
            at_work[waiting.pop(name)()] = name
        ended = ray.wait(list(at_work), num_returns=1, timeout=_LOOK_EVERY_S)[0] if at_work else []
        display.show(ray.get(noticeboard.read.remote()))
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
        raise Interruption(f"stopped; every unit saved where it is. Go on with: {api_call('do_units', folder=folder)}")
