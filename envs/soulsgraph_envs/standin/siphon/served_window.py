"""The window of the served game and its pictures, for several threads."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.windows import Geometry, Window, find_window

#: (height, width, 4): blue, green, red and 255, Siphon's order.
Bgra = npt.NDArray[np.uint8]
#: A picture younger than this serves several who ask.
_FRESH_S = 1 / 120
_STREAM_HZ = 30
#: Each keeps one of the server's threads.
_MOST_STREAMS = 4


class ServedWindow:
    """The window of process `pid()`, found by `open`; thread-safe."""

    def __init__(self, pid: Callable[[], int], title: str = "", display: str = "") -> None:
        self._pid, self._title, self._display = pid, title, display
        self._lock = threading.Lock()
        self._window: Window | None = None
        self._picture: Bgra | None = None
        self._taken_at = 0.0

    def open(self, expected_title: str = "") -> Geometry:
        """Find the game's window again and return its place and size.

        Raises:
            GameError: if it has none, or one of another title than a client expects.
        """
        with self._lock:
            self._close_window()
            window = find_window(self._title, 0 if self._title else self._pid(), self._display)
            if not window.title.startswith(expected_title):
                window.close()
                raise GameError(
                    f"window: expected {expected_title!r}, found {window.title!r}; correct the configuration."
                )
            self._window = window
            return window.geometry()

    @property
    def title(self) -> str:
        """Return the window's title; empty before `open`."""
        return self._window.title if self._window is not None else ""

    def focus(self) -> None:
        """Bring it to the front."""
        with self._lock:
            self._opened().focus()

    def focused(self) -> bool:
        """Return whether keys reach it; False if it was not opened or is gone."""
        with self._lock:
            try:
                return self._window is not None and self._window.focused()
            except GameError:
                return False

    def capture(self) -> Bgra:
        """Capture it.

        Raises:
            GameError: if it was not opened or is gone.
        """
        with self._lock:
            if self._picture is None or time.monotonic() - self._taken_at > _FRESH_S:
                rgb = self._opened().capture()
                opaque = np.full((*rgb.shape[:2], 1), 255, np.uint8)
                self._picture = np.concatenate((rgb[:, :, ::-1], opaque), axis=2)
                self._taken_at = time.monotonic()
            return self._picture

    def close(self) -> None:
        """Release it; a second call does nothing."""
        with self._lock:
            self._close_window()

    def _opened(self) -> Window:
        if self._window is None:
            raise GameError("window: expected it to be initialized, found it not; send InitializeCapture.")
        return self._window

    def _close_window(self) -> None:
        self._picture = None
        if self._window is not None:
            with suppress(GameError):
                self._window.close()
            self._window = None


class FrameStreams:
    """Make streams of pictures, a few at once."""

    def __init__(self, capture: Callable[[], Bgra]) -> None:
        self._capture = capture
        self._free = threading.Semaphore(_MOST_STREAMS)

    def stream(self, kind: str, quality: int, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Yield the values of Siphon's frame messages, "jpeg" or "raw" (BGRA), while they are `wanted`.

        Raises:
            GameError: for another kind, too many streams, or a window that cannot be captured.
        """
        if kind not in ("jpeg", "raw"):
            raise GameError(f"StreamFrames: expected the format jpeg or raw, found {kind!r}; choose one of them.")
        if not self._free.acquire(blocking=False):
            raise GameError(f"StreamFrames: expected at most {_MOST_STREAMS} streams, found one more; end another.")
        try:
            yield from self._frames(kind, quality, wanted)
        finally:
            self._free.release()

    def _frames(self, kind: str, quality: int, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        number, due = 0, time.monotonic()
        while wanted():
            picture = self._capture()
            number += 1
            yield {
                "data": picture.tobytes() if kind == "raw" else _jpeg(picture, quality),
                "timestamp_us": time.time_ns() // 1000,
                "width": picture.shape[1],
                "height": picture.shape[0],
                "frame_number": number,
                "format": kind,
            }
            now = time.monotonic()
            due = max(due + 1 / _STREAM_HZ, now)
            time.sleep(due - now)


def _jpeg(picture: Bgra, quality: int) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(picture[:, :, 2::-1]).save(packed, "JPEG", quality=min(max(quality, 1), 95))
    return packed.getvalue()
