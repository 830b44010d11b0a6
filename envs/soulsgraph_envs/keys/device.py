"""The device contract, to press and release one key of the game's keyboard; and how keys are named."""

from __future__ import annotations

import string
from typing import Protocol, runtime_checkable

from soulsgraph_envs.errors import GameError, UnknownNameError

MOUSE_BUTTONS = ("mouse_left", "mouse_middle", "mouse_right", "mouse_back", "mouse_forward")
MODIFIERS = tuple(f"{side}_{key}" for key in ("shift", "ctrl", "alt") for side in ("left", "right"))
ARROWS = ("up", "down", "left", "right")
#: Keys that a keyboard of any layout has at the same place, letters taken as those of an English one.
KEY_NAMES = (
    *string.ascii_lowercase,
    *string.digits,
    *(f"f{number}" for number in range(1, 13)),
    *("space", "enter", "escape", "tab", "backspace"),
    *ARROWS,
    *MODIFIERS,
    *MOUSE_BUTTONS,
)


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
        """Close the device; a second call does nothing."""
        ...


def check_key(key: str) -> None:
    """Refuse a name that no key has.

    Raises:
        GameError: naming the key nearest to it.
    """
    if key not in KEY_NAMES:
        raise GameError(str(UnknownNameError("key", key, KEY_NAMES)))
