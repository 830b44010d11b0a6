"""Key names as Siphon spells them: the bindings' in capitals, mouse buttons without their prefix.

Source: the scan code and mouse button tables of Siphon's public server.
"""

from __future__ import annotations

from string import ascii_uppercase, digits

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


def to_siphon(key: str) -> str:
    """Spell a key of the bindings as Siphon does: "left_shift" is LEFT_SHIFT, "mouse_left" is LEFT."""
    return _DIFFERENT.get(key, key.upper())


def from_siphon(name: str) -> str:
    """Return the bindings' name of a key that a Siphon client sent, in whatever case."""
    return _FROM_SIPHON.get(name.upper(), name.lower())
