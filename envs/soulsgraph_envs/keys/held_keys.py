"""What is down on a key device, so that everything that went down comes up again."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.device import KeyDevice


class HeldKeys:
    """Hold and tap keys of a device; nothing stays down after a failure, the end of the context or of Python.

    With a device of `open_key_device` not even after the process was killed.
    """

    def __init__(self, device: KeyDevice, sleep: Callable[[float], None] = time.sleep) -> None:
        self.device = device
        self._sleep = sleep
        self._down: list[str] = []
        weakref.finalize(self, _let_up, device, self._down)

    @property
    def down(self) -> tuple[str, ...]:
        """The keys that are down, in the order they were pressed."""
        return tuple(self._down)

    def hold(self, keys: Collection[str]) -> None:
        """Hold exactly these keys down: others come up first, then new ones go down in the order given."""
        with self._all_up_on_failure():
            for key in [key for key in reversed(self._down) if key not in keys]:
                self._release(key)
            for key in keys:
                self._press(key)

    def tap(self, keys: Sequence[str], for_s: float) -> None:
        """Press keys, wait and release them in the opposite order; one that was held is pressed anew."""
        with self._all_up_on_failure():
            for key in keys:
                self._release(key)
            for key in keys:
                self._press(key)
            if keys:
                self._sleep(for_s)
            for key in reversed(keys):
                self._release(key)

    def release_all(self) -> None:
        """Let every key up.

        Raises:
            GameError: if the device failed at a key; the others are up, and it counts as up too.
        """
        failure = _let_up(self.device, self._down)
        if failure is not None:
            raise failure

    def __enter__(self) -> HeldKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_all()

    def _press(self, key: str) -> None:
        if key not in self._down:
            # Counted first: an interruption in between must not leave the key down.
            self._down.append(key)
            self.device.press(key)

    def _release(self, key: str) -> None:
        if key in self._down:
            self.device.release(key)
            self._down.remove(key)

    @contextmanager
    def _all_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # What went wrong first is what the caller must hear of.
            with suppress(GameError):
                self.release_all()
            raise


def _let_up(device: KeyDevice, down: list[str]) -> GameError | None:
    """Release `down`, the latest first, and empty it; return the last failure."""
    failure = None
    while down:
        try:
            device.release(down[-1])
        except GameError as error:
            failure = error
        down.pop()
    return failure
