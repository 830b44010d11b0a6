"""Do the units of a reproduction as Ray tasks, as many at a time as there are processors."""

from __future__ import annotations

import time
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
    """How a unit ended: empty if it is done, else why not."""

    failure: str = ""
    stopped: bool = False


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
    """
    began_s = time.monotonic()
    noticeboard = open_noticeboard()
    endings: dict[str, Ending] = {}
    try:
        with interruptible() as interrupted, units_display(console) as display:
            left = _begin(folder, noticeboard)
            while left:
                if interrupted():
                    ray.get(noticeboard.stop.remote())
                ended = _look(left, noticeboard, display)
                if ended:
                    folder.assemble()
                endings |= ended
    finally:
        folder.add_wall_time(time.monotonic() - began_s)
    _judge(folder, endings)


def _begin(folder: ReproductionFolder, noticeboard: Any) -> dict[Any, str]:
    """Submit every unit; give their names by Ray's reference."""
    path = folder.path.resolve()
    unit_task, references_task = (ray.remote(num_cpus=1)(function) for function in (do_unit, do_references))
    units = {unit_task.remote(path, unit, noticeboard): unit.name for unit in folder.protocol.units()}
    return units | {references_task.remote(path): "references"}


def _look(left: dict[Any, str], noticeboard: Any, display: UnitsDisplay) -> dict[str, Ending]:
    """Wait a moment, show the units at work, and give those that ended, which leave `left`."""
    ended, _ = ray.wait(list(left), num_returns=1, timeout=_LOOK_EVERY_S)
    display.show(ray.get(noticeboard.read.remote()))
    endings = {}
    for reference in ended:
        name = left.pop(reference)
        endings[name] = _ending(reference)
        display.ended(name, endings[name].failure or "done")
    return endings


def _ending(reference: Any) -> Ending:
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return Ending("its process died; the unit goes on from its last checkpoint with --resume")
    return ending


def _judge(folder: ReproductionFolder, endings: dict[str, Ending]) -> None:
    failed = {name: ending for name, ending in endings.items() if ending.failure and not ending.stopped}
    if failed:
        reasons = "; ".join(f"{name}: {ending.failure}" for name, ending in failed.items())
        raise SoulsGraphError(f"{folder.path}: {len(failed)} of {len(endings)} units failed: {reasons}")
    if any(ending.stopped for ending in endings.values()):
        raise Interrupted(
            f"stopped; every unit saved where it is. Go on with: soulsgraph reproduce --resume --out {folder.path}"
        )
