"""Keys on Linux: X11's XTEST extension, whose events a game cannot tell from a keyboard's, and its display."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.device import KEY_NAMES, MOUSE_BUTTONS, check_key

_KEYSYMS = {
    "enter": "Return",
    "escape": "Escape",
    "tab": "Tab",
    "backspace": "BackSpace",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "left_ctrl": "Control_L",
    "right_ctrl": "Control_R",
    "left_shift": "Shift_L",
    "right_shift": "Shift_R",
    "left_alt": "Alt_L",
    "right_alt": "Alt_R",
}
#: X numbers the wheel's directions 4 to 7; its pointer state knows nothing of buttons above 5.
_BUTTONS = dict(zip(MOUSE_BUTTONS, (1, 2, 3, 8, 9), strict=True))
#: Bit of button 0, if there were one, in the state of the pointer: eight modifiers come before button 1.
_FIRST_BUTTON = 7


class XTestDevice:
    """Press keys of an X display, which may be a virtual one; "" is the display of the environment.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self.name = display
        self._display: Any = open_display(display)
        if not self._display.query_extension("XTEST"):
            raise GameError(f"X display {display or 'of the environment'}: expected the extension XTEST, found none.")
        self._keycodes: dict[str, int] = {}

    def check(self, key: str) -> None:
        """Raise `GameError` if the keyboard has no such key."""
        if key not in _BUTTONS:
            self._keycode(key)

    def press(self, key: str) -> None:
        """Send a key down, and wait until the display has taken it."""
        self._send(key, down=True)

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""
        self._send(key, down=False)

    def down(self) -> tuple[str, ...]:
        """Return the keys that the display counts as down, whoever pressed them."""
        with raised_as("keys down"):
            keymap = self._open().query_keymap()
            buttons = self._open().screen().root.query_pointer().mask >> _FIRST_BUTTON
        pressed = {code for code in range(8 * len(keymap)) if keymap[code // 8] >> code % 8 & 1}
        keys = (key for key in KEY_NAMES if key not in _BUTTONS and self._keycode(key) in pressed)
        return (*keys, *(key for key, number in _BUTTONS.items() if buttons >> number & 1))

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        if self._display is not None:
            close_display(self._display)
            self._display = None

    def _send(self, key: str, down: bool) -> None:
        from Xlib import X
        from Xlib.ext.xtest import fake_input

        if key in _BUTTONS:
            kind, detail = (X.ButtonPress if down else X.ButtonRelease), _BUTTONS[key]
        else:
            kind, detail = (X.KeyPress if down else X.KeyRelease), self._keycode(key)
        with raised_as(f"key {key!r}"):
            fake_input(self._open(), kind, detail)
            self._display.sync()

    def _open(self) -> Any:
        if self._display is None:
            raise GameError("keys: expected an open device, found a closed one.")
        return self._display

    def _keycode(self, key: str) -> int:
        if key not in self._keycodes:
            check_key(key)
            self._keycodes[key] = self._look_up(key)
        return self._keycodes[key]

    def _look_up(self, key: str) -> int:
        from Xlib import XK

        name = _KEYSYMS.get(key, key.upper() if key[0] == "f" and key[1:].isdigit() else key)
        keycode = self._open().keysym_to_keycode(XK.string_to_keysym(name))
        if not keycode:
            raise GameError(
                f"key {key!r}: expected it on the keyboard of the display, found none; choose an English layout."
            )
        return int(keycode)


def open_display(name: str = "") -> Any:
    """Connect to an X display; "" is the one of the environment.

    Raises:
        GameError: if python-xlib is not installed or the display cannot be reached.
    """
    try:
        from Xlib.display import Display
        from Xlib.error import DisplayError
    except ImportError as error:
        raise GameError(
            "expected python-xlib to be installed, found none; install it: pip install 'soulsgraph[game]'."
        ) from error
    asked = name or os.environ.get("DISPLAY", "")
    if not asked:
        raise GameError("X display: expected one named by DISPLAY or the settings, found none; start one: xvfb-run.")
    try:
        return Display(asked)
    except (DisplayError, OSError) as error:
        raise GameError(
            f"X display {asked!r}: expected one that can be reached, found {error}; "
            "name one that runs, or start one: xvfb-run."
        ) from error


def close_display(display: Any) -> None:
    """Disconnect from an X display; does nothing for one that is gone."""
    from Xlib.error import ConnectionClosedError, XError

    with suppress(ConnectionClosedError, XError, OSError):
        display.close()


@contextmanager
def raised_as(what: str) -> Iterator[None]:
    """Raise python-xlib's errors, such as a display that is gone, as `GameError`."""
    from Xlib.error import ConnectionClosedError, XError

    try:
        yield
    except (ConnectionClosedError, XError, OSError) as error:
        raise GameError(f"{what}: expected the X display to answer, found {error}; is the display gone?") from error
