"""Let long work stop at a clean point when it is asked to: Ctrl-C, or a terminated job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from soulsgraph_envs.errors import SoulsGraphError

#: Said where no clean point was waited for.
TERMINATED = "terminated; a run goes on from its last checkpoint with --resume"


class Interrupted(SoulsGraphError):  # noqa: N818 - a request, not an error
    """The user asked to stop; what was done so far is saved."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn a termination into `Interrupted` wherever no clean point is waited for, as Ctrl-C is an exception there."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a question whether a stop was asked for; a second Ctrl-C stops at once, saving nothing."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
