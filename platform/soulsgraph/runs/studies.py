"""Do the units of a study, one to a processor, on one display.

On Ray a unit is a task on any node, all of which see the study's folder. Without Ray, as on Windows, units are done one
after another in this process.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

from soulsgraph.runs.progress import (
    BEGINS,
    Interruption,
    UnitProgress,
    UnitsDisplay,
    UnitSupervisor,
    bars_on,
    interruptible,
    silence_advice,
)
from soulsgraph.runs.study_folder import StudyFolder, Unit
from soulsgraph.runs.workplace import joined_session
from soulsgraph_clusters.sessions.head import ClusterError
from soulsgraph_clusters.sessions.nodes import SEEN_WITHIN_S, Probe, describe_loss, probed
from soulsgraph_clusters.sessions.session import describe_wait
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_policies.agents.projects import LoadedProject, loaded_projects, take_over

#: Why a unit failed that met an error which no user can cause.
MET_A_DEFECT = "met a defect, shown when the others are done"


class ProgressActor:
    """The last progress of every unit, and whether they are to stop; lives in a Ray actor."""

    def __init__(self) -> None:
        self._running: dict[str, UnitProgress] = {}
        self._stopping = False

    def record(self, unit: str, progress: UnitProgress | None) -> bool:
        """Record a unit's progress, None once it has ended; return whether it is to stop."""
        if progress is None:
            self._running.pop(unit, None)
        else:
            self._running[unit] = progress
        return self._stopping

    def read(self) -> Mapping[str, UnitProgress]:
        """Return the last progress of the running units."""
        return dict(self._running)

    def stop(self) -> None:
        """Stop every unit."""
        self._stopping = True


def start_progress_actor() -> Any:
    """Start the actor of the units' progress on the driver's node; it takes no processor from the units."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(ProgressActor).remote()


#: Seconds between two looks at the units.
_LOOK_EVERY_S = 0.3


@dataclass(frozen=True)
class Ending:
    """How a unit ended: empty if it finished, else the reason; a `defect` keeps its traceback."""

    failure: str | SoulsGraphError = ""
    stopped: bool = False
    defect: Exception | None = None


def do_unit(folder: StudyFolder[Any], unit: Unit, supervisor: UnitSupervisor) -> Ending:
    """Do a unit, and keep its rows; errors that a user can cause come as a message."""
    supervisor.report(UnitProgress(BEGINS, 0, 1))
    try:
        if supervisor.stop_requested():
            return Ending("not begun", stopped=True)
        work = resolve_name(unit.work) if isinstance(unit.work, str) else unit.work
        folder.keep(unit, work(folder, *unit.arguments, supervisor))
        return Ending()
    except Interruption as stop:
        return Ending(stop, stopped=True)
    except SoulsGraphError as error:
        return Ending(error)
    finally:
        supervisor.report(None)


def do_remotely(
    folder: StudyFolder[Any], projects: Sequence[LoadedProject], unit: Unit, actor: Any, probe: Probe | None = None
) -> Ending:
    """Do a unit in a Ray task; a node that joined after all were asked answers the `probe` now."""
    silence_advice()
    take_over(projects)
    if probe and (problem := probe.problem()):
        return Ending(ClusterError(f"found {problem} on {socket.gethostname()}"))
    return do_unit(folder, unit, UnitSupervisor(lambda *of: bool(ray.get(actor.record.remote(*of))), unit.name))


def confirmed(folder: StudyFolder[Any], unit: Unit, ending: Ending, within_s: float = SEEN_WITHIN_S) -> Ending:
    """Return how a unit ended, as a failure where it finished and this process does not see its rows."""
    until_s = time.monotonic() + within_s
    while not (ending.failure or folder.rows_of(unit).is_dir()):
        if time.monotonic() > until_s:
            return Ending(ClusterError(f"{folder.path}: expected its rows, found that its node left none there."))
        time.sleep(0.2)
    return ending


def run_study(folder: StudyFolder[Any], console: Console, address: str | None = None) -> None:
    """Do the units that are left, on a cluster or this machine, and put the rows together after each.

    Raises:
        ClusterError: if Ray cannot be used, a node does not see the folder, or runs other code.
        Interruption: if a stop was asked for; every running unit has saved a checkpoint.
        SoulsGraphError: naming the units that failed; the others are done.
        ExceptionGroup: of the defects that units met; the others are done.
    """
    by_ray, left = sys.platform != "win32", bool(folder.left)
    with joined_session(folder, console, address, needed=by_ray and left), ExitStack() as stack:
        console.print(f"folder {folder.path}")
        if left:
            stack.enter_context(folder.session())
            folder.prepare()
        for first in (True, False):
            if units := [unit for unit in folder.left if unit.first == first]:
                (_on_ray if by_ray else in_turn)(folder, units, console)
        folder.assemble()


def in_turn(folder: StudyFolder[Any], units: Sequence[Unit], console: Console) -> None:
    """Do units one after another in this process; raises as `run_study`."""
    endings: dict[str, Ending] = {}
    with interruptible() as interrupted, bars_on(console) as bars:
        display = UnitsDisplay(bars)

        def record(name: str, progress: UnitProgress | None) -> bool:
            display.show({} if progress is None else {name: progress})
            return interrupted()

        for unit in units:
            endings[unit.name] = ending = do_unit(folder, unit, UnitSupervisor(record, unit.name))
            display.ended(unit.name, ending.failure or "done")
            folder.assemble()
    check_endings(folder.path, endings)


def _on_ray(folder: StudyFolder[Any], units: Sequence[Unit], console: Console) -> None:
    """Do units as tasks of Ray, one to a processor; raises as `run_study`."""
    elsewhere, endings = type(folder)(folder.path.resolve(), folder.plan), dict[str, Ending]()
    with probed(folder.path) as probe:
        if waited := describe_wait({"CPU": 1.0}):
            console.print(f"units: {waited}")
        actor, task = start_progress_actor(), ray.remote(num_cpus=1)(do_remotely)
        projects = tuple(loaded_projects().values())
        tasks = {unit: partial(task.remote, elsewhere, projects, unit, actor, probe) for unit in units}
        with interruptible() as interrupted, bars_on(console) as bars:
            for unit, ending in follow(tasks, actor, UnitsDisplay(bars), interrupted, partial(confirmed, folder)):
                endings[unit.name] = ending
                folder.assemble()
    check_endings(folder.path, endings)


def follow(
    tasks: Mapping[Unit, Callable[[], Any]],
    actor: Any,
    display: UnitsDisplay,
    interrupted: Callable[[], bool],
    confirm: Callable[[Unit, Ending], Ending] = lambda unit, ending: ending,
) -> Iterator[tuple[Unit, Ending]]:
    """Do units, one per processor, show the running ones and yield each as it ends.

    Calling a task submits it and returns Ray's reference to its ending; `confirm` checks that before it is reported.
    Once interrupted, the running ones are asked to stop and the waiting ones are not started.
    """
    waiting, at_work, stopping = dict(tasks), dict[Any, Unit](), False
    while waiting or at_work:
        endings: dict[Unit, Ending] = {}
        if interrupted() and not stopping:
            stopping = True
            ray.get(actor.stop.remote())
            endings, waiting = dict.fromkeys(waiting, Ending("not begun", stopped=True)), {}
        # Ray takes a blocked task's processor for free and would begin all before long.
        free = max(int(ray.cluster_resources().get("CPU", 1)), 1) - len(at_work)
        for unit in [*waiting][: max(free, 0)]:
            at_work[waiting.pop(unit)()] = unit
        ended = ray.wait(list(at_work), num_returns=1, timeout=_LOOK_EVERY_S)[0] if at_work else []
        display.show(ray.get(actor.read.remote()))
        for reference in ended:
            unit = at_work.pop(reference)
            endings[unit] = confirm(unit, _ending(reference))
        for unit, ending in endings.items():
            display.ended(unit.name, ending.failure or "done")
            yield unit, ending


def _ending(reference: Any) -> Ending:
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.RayTaskError as defect:
        return Ending(MET_A_DEFECT, defect=defect)
    except ray.exceptions.RayError as error:
        return Ending(f"{describe_loss(error)}; the unit resumes from its last checkpoint, if any")
    return ending


def check_endings(folder: Path, endings: Mapping[str, Ending]) -> None:
    """Raise the error of unfinished units: defects first, then failures, then a stop.

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
