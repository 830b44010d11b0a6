"""The device contract: press and release one key of the game's keyboard."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class KeyDevice(Protocol):
    """Press and release keys, named as in the bindings: "w", "space", "left_shift", "mouse_left"."""

    def check(self, key: str) -> None:
        """Raise `GameError` if the device has no such key."""
        ...

    def press(self, key: str) -> None:
        """Send a key down."""
        ...

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""
        ...

    def close(self) -> None:
        """Let go of the device; a second call does nothing."""
        ...
