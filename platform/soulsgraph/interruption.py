"""Let long work stop at a clean point when it is asked to: Ctrl-C, or a terminated job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from soulsgraph_envs.errors import SoulsGraphError

#: Commands that go on from a checkpoint: when asked to, or by themselves.
_RESUMED, _REPEATED = ("curriculum", "baseline", "reproduce"), ("train", "adapt", "recovery")


class Interrupted(SoulsGraphError):  # noqa: N818 - a request, not an error
    """The user asked to stop; what was done so far is saved."""


def stopped(how: str, command: str) -> str:
    """Print how a command ended where no clean point was waited for, and how to go on."""
    if command in _RESUMED:
        return f"{how}; the run goes on from its last checkpoint with --resume"
    if command in _REPEATED:
        return f"{how}; the same command goes on from the last checkpoint"
    return f"{how}; the same command begins anew"


@contextmanager
def terminable(command: str) -> Iterator[None]:
    """Turn a termination into `Interrupted` wherever no clean point is waited for, as Ctrl-C is an exception there."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(stopped("terminated", command))

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Return a question whether a stop was asked for; a second Ctrl-C stops at once, saving nothing."""
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
