"""The clock of a real-time game's driver: the machine's own, or a test's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from soulsgraph_envs.errors import SoulsGraphError


class Clock(NamedTuple):
    """Read the time and wait, both in seconds of the machine."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class StoppedError(SoulsGraphError):
    """Somebody who no longer needs the game told its driver to stop waiting."""


def stoppable(stop: threading.Event) -> Clock:
    """Return a clock on which nobody waits any longer once `stop` is set: not for a tick, nor for a game to load.

    Its `sleep` raises `StoppedError` then.
    """

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if stop.is_set():
            raise StoppedError("playing was stopped.")

    return Clock(sleep=sleep)
