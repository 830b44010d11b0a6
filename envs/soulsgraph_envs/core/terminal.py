"""Standard streams that are closed or lose their reader, and the signals by which a terminal ends what runs in it."""

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
from typing import TextIO, cast

#: The exit code of a command that prints for nobody, as a shell reports it of one that SIGPIPE ended.
UNREAD = 141
#: A pipe without a reader, a terminal that was closed; and a file that grows no more.
_UNREAD, _FULL = (errno.EPIPE, errno.EIO), (errno.ENOSPC, errno.EDQUOT)
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
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            if nothing != number:
                os.close(nothing)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # `print(..., file=None)` prints to standard output.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open to the end


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
            kept = io.BufferedWriter(_Output(stream.fileno()))
            lines = stream.line_buffering or stream.write_through
            settings = {"encoding": stream.encoding, "errors": "backslashreplace", "line_buffering": lines}
            setattr(sys, name, cast(Callable[..., TextIO], io.TextIOWrapper)(kept, **settings))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Output(io.RawIOBase):
    """A standard stream by its number."""

    def __init__(self, number: int) -> None:
        self._number, self._said = number, False

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the stream's number."""
        return self._number

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._number)

    def write(self, data: object) -> int:
        """Write bytes, and return how many were written or dropped."""
        buffer = memoryview(data)  # type: ignore[arg-type]
        try:
            return os.write(self._number, buffer)
        except OSError as error:
            if error.errno in _UNREAD:
                self._close()
                if self._number == 1 and not _going_on:
                    raise SystemExit(UNREAD) from None
            elif error.errno not in _FULL:
                raise
            elif self._number == 1 and not _going_on:
                # What is kept back would be written again at the end, by Python itself.
                self._close()
                raise OSError(error.errno, error.strerror, "standard output") from None
            self._say(error)
            return len(buffer)

    def _close(self) -> None:
        """Write to nothing from now on, as all do that share the number."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._number)
        os.close(nothing)

    def _say(self, error: OSError) -> None:
        if self._number != 1 or self._said:
            return
        self._said = True
        with suppress(OSError, ValueError):
            print(f"standard output: {error.strerror}; the work goes on without it", file=sys.stderr, flush=True)
