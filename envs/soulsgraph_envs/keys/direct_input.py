"""Keys on Windows: SendInput scan codes through pydirectinput-rgx, or the older pydirectinput in its place."""

from __future__ import annotations

import sys
from typing import Any

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.names import MODIFIERS, check_key

_BUTTONS = {"mouse_left": "left", "mouse_middle": "middle", "mouse_right": "right"}
_KEYS = {key: "".join(reversed(key.split("_"))) for key in MODIFIERS}
#: The older package sends other scan codes for these: 9D and B8 rather than 1D and 38, extended.
_WRONG_IN_THE_OLDER = ("right_ctrl", "right_alt")


class DirectInputDevice:
    """Press keys for whatever window has the focus; not yet tried on a running game.

    `sender` is the package's module, imported if none is given.

    Raises:
        GameError: if neither package can be imported here.
    """

    def __init__(self, sender: Any = None) -> None:
        self._sender = sender or import_sender()
        # Unless told otherwise they wait after each call, the older package for 0.1 s: a whole control tick.
        self._sender.PAUSE = 0
        # The mouse in a corner of the screen would otherwise end the program.
        self._sender.FAILSAFE = False

    def check(self, key: str) -> None:
        """Raise `GameError` if the package cannot send the key."""
        check_key(key)
        if key not in _BUTTONS and _KEYS.get(key, key) not in self._sender.KEYBOARD_MAPPING:
            raise GameError(f"key {key!r}: expected one that pydirectinput can send, found none; bind another.")
        if key in _WRONG_IN_THE_OLDER and not hasattr(self._sender, "scancode_keyDown"):
            raise GameError(
                f"key {key!r}: expected pydirectinput-rgx, found the older pydirectinput, which sends another key; "
                "replace it: pip uninstall pydirectinput, then pip install --force-reinstall pydirectinput-rgx."
            )

    def press(self, key: str) -> None:
        """Send a key down."""
        self.check(key)
        if key in _BUTTONS:
            self._sender.mouseDown(button=_BUTTONS[key])
        else:
            self._sender.keyDown(_KEYS.get(key, key))

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""
        self.check(key)
        if key in _BUTTONS:
            self._sender.mouseUp(button=_BUTTONS[key])
        else:
            self._sender.keyUp(_KEYS.get(key, key))

    def close(self) -> None:
        """Do nothing: the package keeps nothing open."""


def import_sender() -> Any:
    """Import the module `pydirectinput` of whichever of the two packages was installed last.

    Raises:
        GameError: on a system other than Windows, or if neither is installed.
    """
    try:
        import pydirectinput
    except ModuleNotFoundError as error:
        raise GameError(
            "expected pydirectinput-rgx to be installed, found none; install it: pip install 'soulsgraph[game]'."
        ) from error
    except (ImportError, AttributeError) as error:
        # Off Windows both packages install, and fail at the first look for its libraries.
        raise GameError(f"pydirectinput: expected Windows, found {sys.platform}; use an X display here.") from error
    return pydirectinput
