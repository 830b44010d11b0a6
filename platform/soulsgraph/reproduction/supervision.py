"""How units of a reproduction report to the driver, and the one display of them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import ray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

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

    def tell(self, unit: str, standing: Standing | None) -> bool:
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
        self._stopping = bool(ray.get(self._noticeboard.tell.remote(self._unit, standing)))


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


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress, self._paces = progress, Paces()
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
        self._progress.console.print(f"{unit}: {how}", highlight=False, soft_wrap=True)


class _Lines:
    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock, self._paces = console, clock, Paces(clock)
        self._next_s = clock() + LINES_EVERY_S

    def show(self, standings: Mapping[str, Standing]) -> None:
        lines = [f"{unit}: {self._paces.describe(unit, standing)}" for unit, standing in sorted(standings.items())]
        if lines and self._clock() >= self._next_s:
            self._next_s = self._clock() + LINES_EVERY_S
            self._console.print("\n".join(lines), highlight=False, soft_wrap=True)

    def ended(self, unit: str, how: str) -> None:
        self._console.print(f"{unit}: {how}", highlight=False, soft_wrap=True)


@contextmanager
def units_display(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[UnitsDisplay]:
    """Return a console's display of units; a quiet console shows nothing."""
    if not console.is_terminal or console.quiet:
        yield _Lines(console, clock)
        return
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(20),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress)
