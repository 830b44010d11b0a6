"""The game's window: find it, bring it to the front, measure and photograph it; and the keyboard's layout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.pictures import Picture


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


class Shown(Protocol):
    """A window as the system describes it."""

    @property
    def title(self) -> str:
        """Its title."""
        ...

    @property
    def pid(self) -> int:
        """Its process, 0 if unknown."""
        ...


Candidate = TypeVar("Candidate", bound=Shown)


class Window(Protocol):
    """One window of a running program; every method raises `GameError` once it is gone."""

    title: str

    def focus(self) -> None:
        """Bring it to the front, so that keys reach it."""
        ...

    def focused(self) -> bool:
        """Return whether keys reach it; never those of a minimised window."""
        ...

    def geometry(self) -> Geometry:
        """Return its place and size."""
        ...

    def capture(self) -> Picture:
        """Capture its inside; raises `GameError` for a minimised window."""
        ...

    def close(self) -> None:
        """Release it; a second call does nothing."""
        ...


def find_window(title: str = "", pid: int = 0, display: str = "") -> Window:
    """Find a window by its whole title, by its process, or by both.

    Raises:
        GameError: if there is none, or more than one; the message names the titles found.
    """
    if sys.platform == "win32":
        from soulsgraph_envs.keys.user32 import find_user32_window

        return find_user32_window(title, pid)
    from soulsgraph_envs.keys.x11_window import find_x11_window

    return find_x11_window(title, pid, display)


def keyboard_layout(display: str = "") -> Layout:
    """Return the keyboard's layouts: with any layout other than English, games may get other keys.

    Raises:
        GameError: if the display cannot be reached.
    """
    if sys.platform == "win32":
        from soulsgraph_envs.keys.user32 import user32_layout

        return user32_layout()
    from soulsgraph_envs.keys.x11_window import x11_layout

    return x11_layout(display)


def choose_window(shown: Sequence[Candidate], title: str, pid: int, inner_pid: int = 0) -> Candidate:
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
    if fitting:
        listed = ", ".join(map(_with_process, fitting))
        raise GameError(f"expected one window {wanted}, found {len(fitting)}: {listed}; name the process too.")
    if title and titled:
        listed = ", ".join(map(_with_process, titled))
        raise GameError(f"expected a window {wanted}, found {listed}; name in the games file the process that has it.")
    listed = ", ".join(sorted({repr(window.title) for window in shown})) or "none at all"
    raise GameError(f"expected a window {wanted}, found {listed}; start the game, and show its window.")


def minimised(title: str) -> GameError:
    """Make the error of a window that shows nothing because it is minimised."""
    return GameError(f"window {title!r}: expected it on the screen, found it minimised; restore it.")


def _with_process(window: Shown) -> str:
    return f"{window.title!r} of {f'process {window.pid}' if window.pid else 'a process that it does not name'}"
