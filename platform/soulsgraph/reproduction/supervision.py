"""How units tell their driver how far they are, and hear from it that they are to stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

#: Seconds between two reports of a unit.
REPORT_EVERY_S = 0.5


@dataclass(frozen=True)
class Standing:
    """How far a unit is: the stage it is in, its steps (or episodes) of so many, and the last mean return."""

    stage: str
    done: int
    total: int
    mean_return: float | None = None


class Noticeboard:
    """What every unit last told, and whether they are to stop; lives in a Ray actor."""

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self._stopping = False

    def tell(self, unit: str, standing: Standing | None) -> bool:
        """Note how far a unit is, None once it has ended; answer whether it is to stop."""
        if standing is None:
            self._standings.pop(unit, None)
        else:
            self._standings[unit] = standing
        return self._stopping

    def read(self) -> Mapping[str, Standing]:
        """Return what the units at work last told."""
        return dict(self._standings)

    def stop(self) -> None:
        """Stop every unit."""
        self._stopping = True


def open_noticeboard() -> Any:
    """Start the noticeboard's actor; it takes no processor from the units."""
    return ray.remote(num_cpus=0)(Noticeboard).remote()


class RemoteSupervisor:
    """Report a unit's stages to the noticeboard, seldom enough to cost nothing."""

    def __init__(self, noticeboard: Any, unit: str) -> None:
        self._noticeboard, self._unit = noticeboard, unit
        self._stopping, self._next_s = False, 0.0

    def follow(self, name: str, total: int) -> RemoteProgress:
        """Return the progress of the stage that begins now."""
        self._next_s = 0.0
        return RemoteProgress(self, name, total)

    def stop_requested(self) -> bool:
        """Return whether the last answer was to stop."""
        return self._stopping

    def report(self, standing: Standing | None) -> None:
        """Report how far the unit is if it is time to; None, which takes it off the noticeboard, always is."""
        if standing is not None and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_EVERY_S
        self._stopping = bool(ray.get(self._noticeboard.tell.remote(self._unit, standing)))


class RemoteProgress:
    """A stage's progress, told to the noticeboard."""

    def __init__(self, supervisor: RemoteSupervisor, stage: str, total: int) -> None:
        self._supervisor, self._stage, self._total = supervisor, stage, total
        self._mean_return: float | None = None

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        self._mean_return = self._mean_return if mean_return is None else mean_return
        self._supervisor.report(Standing(self._stage, steps, self._total, self._mean_return))
