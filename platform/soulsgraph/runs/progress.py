"""What a run or a study shows while it goes in the terminal: bars, or lines; and how it is stopped."""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from html import escape
from types import FrameType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn

from soulsgraph.results.tables import OutputConsole
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.terminal import go_on_unread, handled_by, hangups


def silence_advice() -> None:
    """Silence deprecation warnings, Ray's log below errors, and its advice on packages for notebooks."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=r".*IProgress not found")
    for name in ("ray", "ray.rllib", "ray.widgets"):
        logging.getLogger(name).setLevel(logging.ERROR)


#: Seconds between two lines where no live bar can be drawn.
LINE_EVERY_S = 10.0

Clock = Callable[[], float]


class StageProgress(Protocol):
    """Receives the progress of a stage while it runs."""

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        ...


class Supervisor(Protocol):
    """Receives the reports of a stage that is one of many, in place of a terminal."""

    def follow(self, name: str, total: int) -> StageProgress:
        """Return the progress of the stage that begins now."""
        ...

    def stop_requested(self) -> bool:
        """Return whether the stage is to save a checkpoint and stop."""
        ...


def draws(console: Console) -> bool:
    """Return whether bars are drawn on a console: not in a file, nor in a terminal that cannot move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal and not console.quiet


@contextmanager
def bars_on(console: Console) -> Iterator[Progress]:
    """Yield the bars of a console, which are drawn meanwhile if it can."""
    columns = "{task.description:<12}", BarColumn(24), TaskProgressColumn(), "{task.fields[text]}"
    bars = Progress(*columns, console=console, disable=not draws(console))
    # One that is disabled prints an empty line as it ends in some releases of rich.
    with nullcontext() if bars.disable else bars:
        yield bars


#: Seconds between two drawings of a bar in a notebook.
REDRAW_S = 0.25
_BAR = '<progress value="{done}" max="{total}" style="width: 16em; vertical-align: middle"></progress>'


class NotebookBar:
    """A bar in the output of a notebook's cell, drawn anew in place."""

    def __init__(self) -> None:
        # Imported here: it is there wherever a notebook is.
        from IPython import display

        self._ipython: Any = display
        self._handle = self._ipython.display(self._ipython.HTML(""), display_id=True)

    def draw(self, name: str, done: int, total: int, text: str) -> None:
        """Draw the bar with its name, how much is done, and a text behind it."""
        bar = _BAR.format(done=done, total=max(total, 1))
        self._handle.update(self._ipython.HTML(f"<div>{escape(name)} {bar} <code>{escape(text)}</code></div>"))


class ShownProgress:
    """Draw one of a console's bars, or one in a notebook, and print a line from time to time anywhere else.

    The rate counts steps a second; steps done before (a resumed stage) do not count.
    """

    def __init__(self, bars: Progress, name: str, total: int, done: int, unit: str, clock: Clock) -> None:
        self._bars, self._name, self._total, self._first, self._unit = bars, name, total, done, unit
        console = bars.console
        self._notebook = NotebookBar() if console.is_jupyter and not console.quiet else None
        self._every_s = LINE_EVERY_S if self._notebook is None else REDRAW_S
        self._clock, self._began_s, self._next_s = clock, clock(), clock() + self._every_s
        self._mean_return: float | None = None
        self._steps, self._line = 0, ""
        self._task = bars.add_task(name, total=total, text="")

    def advance(self, steps: int) -> None:
        """Report that more steps are done."""
        self.update(self._steps + steps)

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        self._steps = steps
        # An iteration in which no episode ended has no return of its own: the last one stands.
        self._mean_return = self._mean_return if mean_return is None else mean_return
        elapsed_s = self._clock() - self._began_s
        rate = (steps - self._first) / elapsed_s if elapsed_s > 0.0 else 0.0
        left = str(timedelta(seconds=round((self._total - steps) / rate))) if rate > 0.0 else "-:--:--"
        mean, unit = "" if self._mean_return is None else f"  return {self._mean_return:.2f}", self._unit
        text = f"{steps:,}/{self._total:,} {unit}  {rate:,.0f} {unit}/s{mean}  left {left}"
        self._bars.update(self._task, completed=steps, text=text)
        self._line = f"{self._name}: {text}"
        if self._clock() >= self._next_s:
            self._next_s = self._clock() + self._every_s
            self.print_line()

    def print_line(self) -> None:
        """Print the last line if it was not, nor drawn as a bar; in a notebook draw the bar anew."""
        if self._line and self._notebook is not None:
            self._notebook.draw(self._name, self._steps, self._total, self._line.removeprefix(f"{self._name}: "))
        elif self._line and self._bars.disable:
            self._bars.console.print(self._line)
        self._line = ""

    def remove(self) -> None:
        """Draw the bar no longer."""
        self._bars.remove_task(self._task)


@contextmanager
def stage_progress(
    name: str,
    total: int,
    console: Console | None = None,
    done: int = 0,
    unit: str = "steps",
    clock: Clock = time.monotonic,
) -> Iterator[ShownProgress]:
    """Return the progress of `total` steps (or another unit), `done` of them before.

    A `console`, by default that of the output, gets plain lines where it is no terminal, and nothing if it is quiet.
    """
    go_on_unread()
    with bars_on(console or OutputConsole()) as bars:
        shown = ShownProgress(bars, name, total, done, unit, clock)
        try:
            yield shown
        finally:
            shown.print_line()


class Interruption(SoulsGraphError):  # noqa: N818 - a request, not an error
    """The user asked to stop; what was done so far is saved."""


@contextmanager
def resumable() -> Iterator[None]:
    """Raise `Interruption` wherever Ctrl-C meets a call of the library that goes on when it is made again."""
    try:
        yield
    except (Interruption, KeyboardInterrupt) as stop:
        how = str(stop) if isinstance(stop, Interruption) else "interrupted"
        raise Interruption(f"{how}; the same call resumes it") from None


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Interruption` on SIGTERM or a closed terminal, as Ctrl-C raises KeyboardInterrupt; no clean stop."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interruption("terminated" if number == signal.SIGTERM else "its terminal was closed")

    with handled_by(stop, signal.SIGTERM, *hangups()):
        yield


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a stop was requested; a second Ctrl-C stops at once, saving nothing.

    A closed terminal requests one, unless nohup had that ignored; where only the output is gone the work goes on.
    """
    go_on_unread()
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    with handled_by(ask, signal.SIGINT, signal.SIGTERM, *hangups()):
        yield lambda: asked


#: Seconds between two reports of a unit.
REPORT_EVERY_S = 0.5
#: What a unit is at before its first stage.
BEGINS = "begins"


@dataclass(frozen=True)
class UnitProgress:
    """The progress of a unit: its stage, the steps (or episodes) done and in all, and the last mean return."""

    stage: str
    done: int
    total: int
    mean_return: float | None = None


class UnitSupervisor:
    """Report a unit's stages at intervals, so that it costs nothing; `record` returns whether it is to stop."""

    def __init__(self, record: Callable[[str, UnitProgress | None], bool], unit: str) -> None:
        self._record, self._unit = record, unit
        self._stopping, self._next_s = False, 0.0
        self._progress = UnitProgress(BEGINS, 0, 1)

    def follow(self, name: str, total: int) -> UnitSupervisor:
        """Take what `update` reports from now on for the progress of this stage."""
        self._progress, self._next_s = UnitProgress(name, 0, total), 0.0
        return self

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Report total steps and the recent mean return."""
        last = self._progress.mean_return if mean_return is None else mean_return
        self._progress = replace(self._progress, done=steps, mean_return=last)
        self.report(self._progress)

    def stop_requested(self) -> bool:
        """Return whether the last answer was to stop."""
        return self._stopping

    def report(self, progress: UnitProgress | None) -> None:
        """Report the progress if the interval has passed; None, which removes the unit, is always reported."""
        if progress is not None and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_EVERY_S
        self._stopping = self._record(self._unit, progress)


class UnitsDisplay:
    """Show the running units, each as a stage of its own is shown."""

    def __init__(self, bars: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars, self._clock = bars, clock
        self._shown: dict[str, tuple[str, ShownProgress]] = {}

    def show(self, running: Mapping[str, UnitProgress]) -> None:
        """Show the progress of the running units."""
        for unit, progress in sorted(running.items()):
            stage, shown = self._shown.get(unit, ("", None))
            if shown is None or stage != progress.stage:
                if stage and progress.stage == BEGINS:
                    self._bars.console.print(
                        f"{unit}: its process or node was lost; it resumes from its last checkpoint, if any"
                    )
                self._remove(unit)
                title = f"{unit}: {progress.stage}"
                shown = ShownProgress(self._bars, title, progress.total, progress.done, "steps", self._clock)
                self._shown[unit] = progress.stage, shown
            shown.update(progress.done, progress.mean_return)

    def ended(self, unit: str, how: str | SoulsGraphError) -> None:
        """Show that a unit has ended."""
        self._remove(unit)
        self._bars.console.print(f"{unit}: {how}")

    def _remove(self, unit: str) -> None:
        if unit in self._shown:
            self._shown.pop(unit)[1].remove()
