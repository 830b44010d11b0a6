"""What a tracker of runs is: a class with these methods, shipped and named by `--track`, or passed as an object."""

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
#: A number, a sample whose distribution is shown, (values,), or a picture, (height, width, 3) of uint8.
Logged = float | npt.NDArray[np.generic]


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker begins with.

    `identity` stays the same when the run is resumed, and a tracker then goes on with what it has under it. `plan`
    is nested, as `plan.json` has it; `tags` are what runs are searched by.
    """

    folder: Path
    identity: str
    plan: Mapping[str, Any]
    tags: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.absolute().name


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
    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Log values by name; together with the group a name is `<group>/<name>`."""

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table, as rows and as Markdown; the one of that name before is replaced."""
        return

    def results(self, options: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its final results."""
        return

    def file(self, name: str, file: Path) -> None:
        """Keep a file of the run, or show it: a film (GIF, MP4) or a page; it stays until `end`."""
        return

    def flush(self) -> None:
        """Bring everything so far to where it is kept, as after each checkpoint."""
        return

    @abstractmethod
    def end(self, finished: bool) -> None:
        """End the tracking; a run that is not `finished` was stopped or failed, and may be resumed."""
