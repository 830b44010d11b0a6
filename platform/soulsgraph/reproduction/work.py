"""Do the units of a reproduction as Ray tasks, as many at a time as there are processors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from soulsgraph.advice import silence_advice
from soulsgraph.interruption import Interrupted, interruptible
from soulsgraph.reproduction.display import UnitsDisplay, units_display
from soulsgraph.reproduction.folder import ReproductionFolder
from soulsgraph.reproduction.protocol import Unit
from soulsgraph.reproduction.rows import judge_references
from soulsgraph.reproduction.supervision import RemoteSupervisor, Standing, open_noticeboard
from soulsgraph.reproduction.unit import UnitJob
from soulsgraph_envs.errors import SoulsGraphError

#: Seconds between two looks at the units.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a unit ended: empty if it is done, else why not; a `defect` keeps its traceback."""

    failure: str = ""
    stopped: bool = False
    defect: Exception | None = None


def do_unit(path: Path, unit: Unit, noticeboard: Any) -> Ending:
    """Do one unit in a Ray task; what a user can cause comes back as a message."""
    silence_advice()
    supervisor = RemoteSupervisor(noticeboard, unit.name)
    supervisor.report(Standing("begins", 0, 1))
    if supervisor.stop_requested():
        return Ending("not begun", stopped=True)
    try:
        folder = ReproductionFolder.open(path)
        UnitJob(folder, unit, folder.run(unit), supervisor).do()
    except Interrupted as stop:
        return Ending(str(stop), stopped=True)
    except SoulsGraphError as error:
        return Ending(str(error))
    finally:
        supervisor.report(None)
    return Ending()


def do_references(path: Path) -> Ending:
    """Judge the scripted references in a Ray task."""
    folder = ReproductionFolder.open(path)
    try:
        folder.record_references(lambda: {"rows": judge_references(folder.protocol.episodes)})
    except SoulsGraphError as error:
        return Ending(str(error))
    return Ending()


def do_units(folder: ReproductionFolder, console: Console) -> None:
    """Do what is left of every unit, assemble the records after each, and show how far they are.

    Needs a Ray session whose nodes all see the folder under the same path.

    Raises:
        Interrupted: if a stop was asked for; every unit at work has saved a checkpoint.
        SoulsGraphError: naming the units that failed; the others are done.
        ExceptionGroup: of the defects that units met; the others are done.
    """
    began_s = time.monotonic()
    noticeboard = open_noticeboard()
    endings: dict[str, Ending] = {}
    try:
        with interruptible() as interrupted, units_display(console) as display:
            for name, ending in follow(_begin(folder, noticeboard), noticeboard, display, interrupted):
                endings[name] = ending
                folder.assemble()
    finally:
        folder.add_wall_time(time.monotonic() - began_s)
    judge_endings(folder.path, endings)


def _begin(folder: ReproductionFolder, noticeboard: Any) -> dict[Any, str]:
    """Submit every unit; give their names by Ray's reference."""
    path = folder.path.resolve()
    unit_task, references_task = (ray.remote(num_cpus=1)(function) for function in (do_unit, do_references))
    units = {unit_task.remote(path, unit, noticeboard): unit.name for unit in folder.protocol.units()}
    return units | {references_task.remote(path): "references"}


def follow(
    units: dict[Any, str], noticeboard: Any, display: UnitsDisplay, interrupted: Callable[[], bool]
) -> Iterator[tuple[str, Ending]]:
    """Show the units (names by Ray's reference) at work and give each as it ends.

    Once interrupted, those at work are told to stop and those that wait are cancelled.
    """
    left, stopping = dict(units), False
    while left:
        if interrupted() and not stopping:
            stopping = True
            ray.get(noticeboard.stop.remote())
            _cancel_waiting(left, noticeboard)
        ended, _ = ray.wait(list(left), num_returns=1, timeout=_LOOK_EVERY_S)
        display.show(ray.get(noticeboard.read.remote()))
        for reference in ended:
            name, ending = left.pop(reference), _ending(reference)
            display.ended(name, ending.failure or "done")
            yield name, ending


def _cancel_waiting(left: Mapping[Any, str], noticeboard: Any) -> None:
    """Cancel what is on no processor yet; a unit caught in beginning has done nothing that could be lost."""
    at_work = ray.get(noticeboard.read.remote())
    for reference, name in left.items():
        if name not in at_work:
            ray.cancel(reference)


def _ending(reference: Any) -> Ending:
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return Ending("not begun", stopped=True)
    except ray.exceptions.RayTaskError as defect:
        return Ending("met a defect, told when the others are done", defect=defect)
    except ray.exceptions.RayError as error:
        reason = str(error).partition("\n")[0]
        return Ending(f"its process died ({reason}); the unit goes on from its last checkpoint with --resume")
    return ending


def judge_endings(folder: Path, endings: Mapping[str, Ending]) -> None:
    """Raise what became of units that are not done: defects before failures before a stop."""
    failed = {name: ending for name, ending in endings.items() if ending.failure and not ending.stopped}
    reasons = "; ".join(f"{name}: {ending.failure}" for name, ending in failed.items())
    summary = f"{folder}: {len(failed)} of {len(endings)} units failed: {reasons}"
    defects = [ending.defect for ending in failed.values() if ending.defect is not None]
    if defects:
        raise ExceptionGroup(summary, defects)
    if failed:
        raise SoulsGraphError(summary)
    if any(ending.stopped for ending in endings.values()):
        raise Interrupted(
            f"stopped; every unit saved where it is. Go on with: soulsgraph reproduce --resume --out {folder}"
        )
