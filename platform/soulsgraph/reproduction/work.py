"""Do the units of a reproduction as Ray tasks, as many at a time as there are processors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from soulsgraph.advice import silence_advice
from soulsgraph.files import api_call
from soulsgraph.progress import Interrupted, interruptible
from soulsgraph.reproduction.folder import ReproductionFolder
from soulsgraph.reproduction.protocol import Unit
from soulsgraph.reproduction.rows import REFERENCES, evaluate_references
from soulsgraph.reproduction.supervision import (
    RemoteSupervisor,
    Standing,
    UnitsDisplay,
    open_noticeboard,
    units_display,
)
from soulsgraph.reproduction.unit import UnitJob, follow_episodes
from soulsgraph_envs.errors import SoulsGraphError

#: Submits a unit and returns Ray's reference to its ending.
Begin = Callable[[], Any]

#: Seconds between two looks at the units.
_LOOK_EVERY_S = 0.3
#: What the display calls the evaluation of the scripted references.
_REFERENCES = "references"


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
        evaluated = follow_episodes(supervisor, "table", REFERENCES * episodes)
        folder.record_references(lambda: {"rows": evaluate_references(episodes, evaluated)})

    return _supervised(path, noticeboard, _REFERENCES, work)


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


def do_units(folder: ReproductionFolder, console: Console) -> None:
    """Do the rest of every unit, assemble the records after each, and show the progress.

    Needs a Ray session whose nodes all see the folder under the same path.

    Raises:
        Interrupted: if a stop was asked for; every running unit has saved a checkpoint.
        SoulsGraphError: naming the units that failed; the others are done.
        ExceptionGroup: of the defects that units met; the others are done.
    """
    began_s = time.monotonic()
    folder.begin_session()
    noticeboard = open_noticeboard()
    endings: dict[str, Ending] = {}
    try:
        with interruptible() as interrupted, units_display(console) as display:
            for name, ending in follow(_beginnings(folder, noticeboard), noticeboard, display, interrupted):
                endings[name] = ending
                folder.assemble()
    finally:
        folder.add_wall_time(time.monotonic() - began_s)
    check_endings(folder.path, endings)


def _beginnings(folder: ReproductionFolder, noticeboard: Any) -> dict[str, Begin]:
    """Return the function that starts each unit, by its name."""
    path = folder.path.resolve()
    unit_task, references_task = (ray.remote(num_cpus=1)(function) for function in (do_unit, do_references))
    units = {unit.name: partial(unit_task.remote, path, unit, noticeboard) for unit in folder.study.units()}
    return units | {_REFERENCES: partial(references_task.remote, path, noticeboard)}


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
                yield name, _told(display, name, Ending("not begun", stopped=True))
            else:
                at_work[begin()] = name
        ended = ray.wait(list(at_work), num_returns=1, timeout=_LOOK_EVERY_S)[0] if at_work else []
        display.show(ray.get(noticeboard.read.remote()))
        for reference in ended:
            name = at_work.pop(reference)
            yield name, _told(display, name, _ending(reference))


def _processors() -> int:
    return max(int(ray.cluster_resources().get("CPU", 1)), 1)


def _told(display: UnitsDisplay, name: str, ending: Ending) -> Ending:
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
