"""The clock, the timer of every fixed-rate loop, and how the time of resets was spent."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import ceil
from typing import NamedTuple, Protocol, runtime_checkable

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import Game

#: Latest ticks of which percentiles are taken: 2 hours at 10 Hz.
_KEPT = 72_000
#: Latest ticks that `recent_lateness` is about: half a minute at 10 Hz.
RECENT_TICKS = 300
#: Windows wakes a sleeper up to this much late; Linux by a tenth of a millisecond.
_SPIN_S = 0.002 if sys.platform == "win32" else 0.0


class Clock(NamedTuple):
    """Read the time and wait, both in seconds of the machine."""

    #: On Windows `time.monotonic` of Python 3.11 goes in steps of 16 ms.
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


_REAL = Clock()


@dataclass(frozen=True)
class DurationSpread:
    """Milliseconds, over the latest ticks."""

    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> DurationSpread:
        """Summarize durations in seconds; all 0 for none."""
        ordered = sorted(durations_s) or [0.0]
        p50, p99 = (ordered[ceil(share * len(ordered)) - 1] for share in (0.50, 0.99))
        return cls(1000 * p50, 1000 * p99, 1000 * ordered[-1])

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.2f}, p99 {self.p99_ms:.2f}, max {self.max_ms:.2f} ms"


@dataclass(frozen=True)
class CycleReport:
    """Statistics of a loop: ticks, how many of them began late because the work before took too long, and times.

    `lateness` is how long after its due time a tick began.
    """

    period_ms: float
    ticks: int
    overruns: int
    seconds: float
    lateness: DurationSpread

    @property
    def rate_hz(self) -> float:
        """Ticks a second, over all of them."""
        return self.ticks / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values."""
        return asdict(self) | {"rate_hz": self.rate_hz}

    def __str__(self) -> str:
        ticks = f"{self.ticks} ticks of {self.period_ms:.1f} ms at {self.rate_hz:.2f} Hz, {self.overruns} overruns"
        return f"{ticks}\nlateness: {self.lateness}"


class CycleTimer:
    """Begin a tick every `period_s`, which may be changed between ticks.

    Ticks are due on a grid, so that lateness does not add up. A tick whose work overran the next one's
    due time starts a new grid where it ended: every tick lasts its period, none is shortened to catch up.
    It sleeps, and spins through the last `spin_s` where the system's sleep is coarse.
    """

    def __init__(self, period_s: float, clock: Clock = _REAL, spin_s: float = _SPIN_S) -> None:
        self.period_s, self._clock, self._spin_s = period_s, clock, spin_s
        self.ticks = self.overruns = 0
        self._begun_s = self._due_s = self._latest_s = clock.now()
        self._lateness: deque[float] = deque(maxlen=_KEPT)
        self._recent: deque[float] = deque(maxlen=RECENT_TICKS)

    def restart(self) -> None:
        """Begin a tick now, after a pause that does not count as an overrun."""
        self._due_s = self._clock.now()
        self._begun_s += self._due_s - self._latest_s
        self._latest_s = self._due_s

    def wait(self) -> float:
        """Wait until the current tick is over; return the lateness of the next one, in seconds."""
        self._due_s += self.period_s
        asked_s = self._clock.now()
        while (left_s := self._due_s - self._clock.now()) > 0:
            if left_s > self._spin_s:
                self._clock.sleep(left_s - self._spin_s)
        self._latest_s = self._clock.now()
        late_s = max(0.0, self._latest_s - self._due_s)
        if asked_s > self._due_s:
            self.overruns += 1
            self._due_s = self._latest_s
        self.ticks += 1
        self._lateness.append(late_s)
        self._recent.append(late_s)
        return late_s

    def recent_lateness(self) -> DurationSpread:
        """Summarize the lateness of the latest ticks; another thread may ask while it ticks."""
        return DurationSpread.of(tuple(self._recent))

    def report(self) -> CycleReport:
        """Summarize the ticks so far."""
        lateness = DurationSpread.of(self._lateness)
        seconds = self._latest_s - self._begun_s
        return CycleReport(1000 * self.period_s, self.ticks, self.overruns, seconds, lateness)


class PhaseClock:
    """Add up the time of named phases; an inner phase's time is not its outer one's. Another thread may read it."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._spent: dict[str, float] = {}
        self._open: list[str] = []
        self._since_s = 0.0
        self._access = threading.Lock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to the phase of this name."""
        with self._access:
            self._book()
            self._open.append(name)
        try:
            yield
        finally:
            with self._access:
                self._book()
                self._open.pop()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase so far, the phase under way included."""
        with self._access:
            self._book()
            return dict(self._spent)

    def _book(self) -> None:
        now_s = self._now()
        if self._open:
            self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now_s - self._since_s
        self._since_s = now_s


@dataclass(frozen=True)
class Timing:
    """How late a game's latest ticks began, and for how many seconds it was reset so far, by phase."""

    lateness: DurationSpread
    reset_s: Mapping[str, float]


@runtime_checkable
class TimedGame(Game, Protocol):
    """A game that runs in real time."""

    def timing(self) -> Timing:
        """Return how punctual it is; another thread than its player's may ask."""


class StoppedError(SoulsGraphError):
    """The driver's waiting was cancelled because the game is no longer needed."""


def stoppable(stop: threading.Event) -> Clock:
    """Return a clock whose waiting, for a tick or for a game to load, ends once `stop` is set.

    Its `sleep` raises `StoppedError` then.
    """

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if stop.is_set():
            raise StoppedError("playing was stopped.")

    return Clock(sleep=sleep)
