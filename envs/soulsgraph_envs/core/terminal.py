"""Standard streams that lose their reader, and the signals by which a terminal ends what runs in it."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO, cast

#: The exit code of a command that prints for nobody, as a shell reports it of one that SIGPIPE ended.
UNREAD = 141
#: A pipe without a reader, a terminal that was closed.
_UNREAD = (errno.EPIPE, errno.EIO)
_going_on = False


def hangups() -> tuple[signal.Signals, ...]:
    """Return the signals of a closed terminal, on Windows of Ctrl-Break too; none where nohup had them ignored."""
    hangup = getattr(signal, "SIGHUP", None) or getattr(signal, "SIGBREAK", None)
    return () if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN else (hangup,)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Handle signals in a block; in another thread than the main one, which alone gets them, they stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal wait for the end of a block, as of an import that can't be repeated."""
    asked = list[int]()
    with handled_by(lambda number, frame: asked.append(number), signal.SIGINT, signal.SIGTERM, *hangups()):
        yield
    if asked:
        signal.raise_signal(asked[0])


def go_on_unread() -> None:
    """Let this process go on with its work from now on, also where nobody reads what it prints."""
    global _going_on
    _going_on = True


def open_streams() -> None:
    """Open closed standard streams on nothing, before files of ours and of programs started here get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest number that is free.
    for name in ("stdout", "stderr"):
        # `print(..., file=None)` prints to standard output.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open to the end


def keep_streams() -> None:
    """Let standard output and error be closed, full or unread without an end to the work.

    Where there is no work that goes on (`go_on_unread`), a process ends without a word and with code 141 when nobody
    reads its standard output. Characters that the output's encoding lacks are printed as escapes.
    """
    open_streams()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Python keeps its own one, so that it is not closed when it is replaced here.
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            stream.flush()
            kept = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
            lines = stream.line_buffering or stream.write_through
            settings = {"encoding": stream.encoding, "errors": "backslashreplace", "line_buffering": lines}
            setattr(sys, name, cast(Callable[..., TextIO], io.TextIOWrapper)(kept, **settings))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Output(io.FileIO):
    """A standard stream that is written to nothing once nobody reads it, or its disk is full."""

    def write(self, data: Any) -> int:
        """Write bytes, and return how many were written or dropped."""
        try:
            return super().write(data)
        except OSError as error:
            # All that share the number write to nothing: Python itself would try again at the end.
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self.fileno())
            if self.fileno() == 1:
                if not _going_on and error.errno in _UNREAD:
                    raise SystemExit(UNREAD) from None
                if not _going_on:
                    raise OSError(error.errno, error.strerror, "standard output") from None
                with suppress(OSError, ValueError):
                    lost = f"standard output: {error.strerror}; the work goes on without it"
                    print(lost, file=sys.stderr, flush=True)
            return memoryview(data).nbytes
