"""The newest picture of a Siphon server's stream, received in a thread of its own."""

from __future__ import annotations

from threading import Condition, Thread

from soulsgraph_envs.eldengym.world import Frame
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.pictures import scaled
from soulsgraph_envs.siphon.answers import streamed_picture
from soulsgraph_envs.siphon.calls import SiphonCalls

_QUALITY = 85
_FIRST_PICTURE_S = 10.0


class FrameStream:
    """Receive pictures until closed; only the newest is kept, scaled to (height, width)."""

    def __init__(self, calls: SiphonCalls, size: tuple[int, int]) -> None:
        self._calls, self._size = calls, size
        self._news = Condition()
        self._packed: object | None = None
        self._error: LinkError | None = None
        self._answers = calls.stream("StreamFrames", format="jpeg", quality=_QUALITY)
        self._closed = False
        self._thread = Thread(target=self._receive, name="siphon-frames", daemon=True)
        self._thread.start()

    def latest(self) -> Frame:
        """Return the newest picture, (height, width, 3) RGB.

        Raises:
            LinkError: if the stream broke off, or no picture ever came.
        """
        with self._news:
            self._news.wait_for(lambda: self._packed is not None or self._error is not None, _FIRST_PICTURE_S)
            packed, error = self._packed, self._error
        if error is not None:
            raise error
        if packed is None:
            raise LinkError(f"Siphon server: expected a picture within {_FIRST_PICTURE_S:g} s, found none.")
        return scaled(streamed_picture(packed), self._size)

    def close(self) -> None:
        """End the stream; a second call does nothing."""
        self._closed = True

    def _receive(self) -> None:
        try:
            for packed in self._answers:
                with self._news:
                    self._packed = packed
                    self._news.notify_all()
                if self._closed:
                    return
            raise LinkError("Siphon server: expected a stream of pictures, found its end.")
        except LinkError as error:
            with self._news:
                self._error = error
                self._news.notify_all()
