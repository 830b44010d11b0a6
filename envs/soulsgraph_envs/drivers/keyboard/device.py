"""The contracts of a keyboard and of the game's window: press one key, find, raise, measure and photograph a window."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.pictures import Picture

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

    def press(self, key: str) -> None:
        """Send a key down."""

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""

    def close(self) -> None:
        """Close the device; a second call does nothing."""


def check_key(key: str) -> None:
    """Refuse a name that no key has.

    Raises:
        GameError: naming the key nearest to it.
    """
    if key not in KEY_NAMES:
        raise GameError(str(UnknownNameError("key", key, KEY_NAMES)))


class Geometry(NamedTuple):
    """A window's inside on its screen, in pixels."""

    x: int
    y: int
    width: int
    height: int


class Layout(NamedTuple):
    """The keyboard's layouts, the one in use first, and whether keys are where an English layout has them."""

    names: tuple[str, ...]
    english: bool


class Shown(NamedTuple):
    """A window as the system lists it: its title, its process (0 if unknown), and how the system names it."""

    title: str
    pid: int
    handle: Any


class Window(Protocol):
    """One window of a running program; every method raises `GameError` once it is gone."""

    title: str

    def focus(self) -> None:
        """Bring it to the front, so that keys reach it."""

    def focused(self) -> bool:
        """Return whether keys reach it; never those of a minimised window."""

    def geometry(self) -> Geometry:
        """Return its place and size."""

    def capture(self) -> Picture:
        """Capture its inside; raises `GameError` for a minimised window."""

    def close(self) -> None:
        """Release it; a second call does nothing."""


def choose_window(shown: Sequence[Shown], title: str, pid: int, inner_pid: int = 0) -> Shown:
    """Choose the one window of a title, a process, or both.

    `inner_pid` is the process's id within its own PID namespace, by which it names itself in a container; a
    window of `pid` comes first.

    Raises:
        GameError: if there is none, or more than one.
    """
    titled = [window for window in shown if title in ("", window.title)]
    fitting = [window for window in titled if pid in (0, window.pid)]
    fitting = fitting or [window for window in titled if inner_pid and window.pid == inner_pid]
    if len(fitting) == 1:
        return fitting[0]
    wanted = " ".join([f"titled {title!r}"] * bool(title) + [f"of process {pid}"] * bool(pid))
    listed = ", ".join(map(_with_process, fitting or titled))
    if fitting:
        raise GameError(f"expected one window {wanted}, found {len(fitting)}: {listed}; name the process too.")
    if title and titled:
        raise GameError(f"expected a window {wanted}, found {listed}; name in the games file the process that has it.")
    listed = ", ".join(sorted({repr(window.title) for window in shown})) or "none at all"
    raise GameError(f"expected a window {wanted}, found {listed}; start the game, and show its window.")


def rgb_of(bgra: bytes, height: int, width: int) -> Picture:
    """Return pixels of blue, green, red and a byte more as (height, width, 3) RGB."""
    pixels = np.frombuffer(bgra, np.uint8).reshape(height, width, 4)
    return np.ascontiguousarray(pixels[:, :, 2::-1])


def minimised(title: str) -> GameError:
    """Make the error of a window that shows nothing because it is minimised."""
    return GameError(f"window {title!r}: expected it on the screen, found it minimised; restore it.")


def _with_process(window: Shown) -> str:
    return f"{window.title!r} of {f'process {window.pid}' if window.pid else 'a process that it does not name'}"
