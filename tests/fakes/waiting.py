"""Waits with a bound, and attempts that a busy machine disturbed made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from soulsgraph_envs.core.errors import SoulsGraphError

#: How long a test waits for what an idle machine does in seconds at most: a busy one may take as much longer.
PATIENCE_S = 600.0
#: What drivers report of a game, or of themselves, where a process waited too long for a processor.
_BUSY = ("the game's clock", "no longer change", "stood still")
#: What a fault of a driver looks like as well, and how often it may be the processor's.
_AMBIGUOUS, _AMBIGUOUS_TIMES = ("keys do not reach the game", "did not come", "in time, found none"), 5

_Answer = TypeVar("_Answer")


def until(condition: Callable[[], _Answer], what: str = "it", timeout_s: float = PATIENCE_S) -> _Answer:
    """Call `condition` until it returns a true value, and return that value.

    Raises:
        AssertionError: if it does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"expected {what} within {timeout_s:g} s, found {answer!r} to the end")
        time.sleep(0.02)
    return answer


def undisturbed(attempt: Callable[[], _Answer]) -> _Answer:
    """Return what `attempt` returns, tried again when a busy machine lost its fight.

    A fight in real time is lost when the game or the control loop stands still.

    Raises:
        SoulsGraphError: if that happens for longer than `PATIENCE_S`; after a few times for what a fault of the driver
            would show as well; at once for any other reason.
    """
    deadline, left = time.monotonic() + PATIENCE_S, _AMBIGUOUS_TIMES
    while True:
        try:
            return attempt()
        except SoulsGraphError as lost:
            ambiguous = any(sign in str(lost) for sign in _AMBIGUOUS)
            left -= ambiguous
            busy = ambiguous or any(sign in str(lost) for sign in _BUSY)
            if not busy or left < 0 or time.monotonic() > deadline:
                raise
