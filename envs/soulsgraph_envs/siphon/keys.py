"""The keys of a game PC, pressed through its Siphon server, and their names there."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase, digits

from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.siphon.calls import SiphonCalls

#: A server answers a tap when it is over, which on a busy machine may be late: its keys are up again either way.
_SLACK_S = 5.0
_DIFFERENT = {
    "mouse_left": "LEFT",
    "mouse_right": "RIGHT",
    "mouse_middle": "MIDDLE",
    "mouse_back": "BUTTON4",
    "mouse_forward": "BUTTON5",
    "escape": "ESC",
    # Siphon's own server has no arrow keys, and its LEFT is the mouse's; EldenGym asks for them by these names.
    "up": "UP_ARROW",
    "down": "DOWN_ARROW",
    "left": "LEFT_ARROW",
    "right": "RIGHT_ARROW",
}
_FROM_SIPHON = {name: key for key, name in _DIFFERENT.items()}
_NAMED = """
    KEYPAD_STAR KEYPAD_PLUS KEYPAD_MINUS KEYPAD_PERIOD ESC BACKSPACE TAB ENTER SPACE CAPSLOCK NUMLOCK SCROLLLOCK
    LEFT_SHIFT RIGHT_SHIFT LEFT_CTRL LEFT_ALT MINUS EQUALS LEFT_BRACKET RIGHT_BRACKET SEMICOLON APOSTROPHE
    GRAVE BACKSLASH COMMA PERIOD SLASH LEFT RIGHT MIDDLE BUTTON4 BUTTON5
"""
#: Every name Siphon knows.
SIPHON_KEYS = frozenset(
    [
        *ascii_uppercase,
        *digits,
        *(f"F{number}" for number in range(1, 13)),
        *(f"KEYPAD_{digit}" for digit in digits),
        *_NAMED.split(),
    ]
)


class SiphonKeys:
    """A key device over Siphon's InputKeyToggle; every key held is released by `close`.

    Siphon's own server can toggle keyboard keys; by its public source it can only tap mouse buttons.
    """

    def __init__(self, calls: SiphonCalls) -> None:
        self._calls = calls
        self._down: set[str] = set()

    def check(self, key: str) -> None:
        """Raise `GameError` if Siphon has no such key."""
        if to_siphon(key) not in SIPHON_KEYS:
            raise GameError(str(UnknownNameError("Siphon key", to_siphon(key), sorted(SIPHON_KEYS))))

    def press(self, key: str) -> None:
        """Send a key down; raises `LinkError` if the server cannot."""
        self._down.add(key)
        self._toggle(key, True)

    def release(self, key: str) -> None:
        """Send a key up; raises `LinkError` if the server cannot."""
        self._toggle(key, False)
        self._down.discard(key)

    def tap(self, keys: Iterable[str], hold_s: float, delay_s: float = 0.0) -> None:
        """Press keys in turn `delay_s` apart, hold them, release them in turn: one call, timed by the server."""
        names = [to_siphon(key) for key in keys]
        lasts_s = hold_s + 2 * delay_s * max(len(names) - 1, 0)
        hold_ms, delay_ms = round(hold_s * 1000), round(delay_s * 1000)
        self._calls.call("InputKeyTap", _SLACK_S + lasts_s, keys=names, hold_ms=hold_ms, delay_ms=delay_ms)

    def move_mouse(self, right: int, down: int, steps: int = 1) -> None:
        """Move the mouse by pixels, in steps of 10 ms."""
        self._calls.call("MoveMouse", _SLACK_S + steps * 0.02, delta_x=right, delta_y=down, steps=steps)

    def close(self) -> None:
        """Release every held key; a second call does nothing."""
        for key in sorted(self._down):
            self.release(key)

    def _toggle(self, key: str, down: bool) -> None:
        self._calls.call("InputKeyToggle", key=to_siphon(key), toggle=down)


def to_siphon(key: str) -> str:
    """Return Siphon's name of a key of the bindings: "left_shift" is LEFT_SHIFT, "mouse_left" is LEFT."""
    return _DIFFERENT.get(key, key.upper())


def from_siphon(name: str) -> str:
    """Return the bindings' name of a key that a Siphon client sent, in whatever case."""
    return _FROM_SIPHON.get(name.upper(), name.lower())
