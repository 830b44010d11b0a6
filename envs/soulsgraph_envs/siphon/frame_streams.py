"""Pictures of the game's window, one after the other, packed for the way."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.siphon.served_window import Bgra

_HZ = 30
#: Each keeps one of the server's threads.
_MOST_STREAMS = 4


class FrameStreams:
    """Give streams of pictures, a few at once."""

    def __init__(self, capture: Callable[[], Bgra]) -> None:
        self._capture = capture
        self._free = threading.Semaphore(_MOST_STREAMS)

    def stream(self, kind: str, quality: int, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Give the values of Siphon's frame messages, "jpeg" or "raw" (BGRA), for as long as they are `wanted`.

        Raises:
            GameError: for another kind, too many streams, or a window that cannot be photographed.
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
            due = max(due + 1 / _HZ, now)
            time.sleep(due - now)


def _jpeg(picture: Bgra, quality: int) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(picture[:, :, 2::-1]).save(packed, "JPEG", quality=min(max(quality, 1), 95))
    return packed.getvalue()
