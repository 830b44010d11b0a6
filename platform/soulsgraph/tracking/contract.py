"""What a tracker of runs is: a class with these methods, named by an entry point or passed as an object.

A package offers its own in the group `soulsgraph.trackers`: the name is what `--track` takes, the object a class that
is called without arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

#: A value that a table or a plan holds.
Plain = str | int | float | bool | None


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker begins with.

    `identity` stays the same when the run is resumed, and a tracker then goes on with what it has under it. `plan`
    is nested, as `plan.json` has it; `tags` are what runs are searched by; `groups` are the names, in order, that
    scalars come under: the skills.
    """

    folder: Path
    identity: str
    plan: Mapping[str, Any]
    tags: Mapping[str, str]
    groups: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.absolute().name

    @property
    def flat_plan(self) -> dict[str, Plain]:
        """The plan as single values, by names joined with a dot."""
        return dict(_flat("", self.plan))


def _flat(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Plain]]:
    found: list[tuple[str, Plain]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(f"{prefix}{name}.", value)
        else:
            found.append((f"{prefix}{name}", value if isinstance(value, str | int | float | None) else str(value)))
    return found


class LogPoint(NamedTuple):
    """Whose values are logged, at which of its own steps, and when (seconds since 1970)."""

    group: str
    step: int
    logged_s: float


class Tracker(ABC):
    """Receives what a run logs.

    `begin` comes first and `end` last; what a run logs at a step comes after the checkpoint that a resumed run would go
    on from, so that no step comes twice. A method that is not overridden leaves its kind out.

    Unless it is `local`, a tracker is called in a thread of its own: it may take its time, and what it raises is shown
    once and ends the tracking, never the training. A `local` one writes files of this machine and is called at once;
    its errors stop the run, as those of any file of the run do.
    """

    local: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse what could not work, as a login that is missing, before anything starts; raises SoulsGraphError."""
        return

    @abstractmethod
    def begin(self, run: TrackedRun) -> None:
        """Begin to track a run, or go on with it where this tracker has its identity already."""

    @abstractmethod
    def scalars(self, at: LogPoint, values: Mapping[str, float]) -> None:
        """Log values by name; together with the group a name is `<group>/<name>`."""

    def histogram(self, at: LogPoint, name: str, values: npt.NDArray[np.generic]) -> None:
        """Log how values are distributed, (values,)."""
        return

    def image(self, at: LogPoint, name: str, pixels: npt.NDArray[np.uint8]) -> None:
        """Log a picture, (height, width, 3)."""
        return

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table, as rows and as Markdown; the one of that name before is replaced."""
        return

    def hyperparameters(self, values: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its final results."""
        return

    def video(self, name: str, file: Path) -> None:
        """Show a film, a GIF or an MP4."""
        return

    def artifact(self, file: Path) -> None:
        """Keep a file of the run."""
        return

    def flush(self) -> None:
        """Bring everything so far to where it is kept, as after each checkpoint."""
        return

    @abstractmethod
    def end(self, finished: bool) -> None:
        """End the tracking; a run that is not `finished` was stopped or failed, and may be resumed."""
