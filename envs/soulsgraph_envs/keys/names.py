"""The names of keys, as bindings write them; every device speaks these."""

from __future__ import annotations

import string

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


def check_key(key: str) -> None:
    """Refuse a name that no key has.

    Raises:
        GameError: naming the key nearest to it.
    """
    if key not in KEY_NAMES:
        raise GameError(str(UnknownNameError("key", key, KEY_NAMES)))
