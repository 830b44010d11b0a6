"""The clock of a real-time game's driver: the machine's own, or a test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """Tell the time and wait, both in seconds of the machine."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
