"""X displays through python-xlib, which is imported only when one is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from soulsgraph_envs.errors import GameError


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
    """Leave an X display; nothing is left to do for one that is gone."""
    from Xlib.error import ConnectionClosedError, XError

    with suppress(ConnectionClosedError, XError, OSError):
        display.close()


@contextmanager
def raised_as(what: str) -> Iterator[None]:
    """Turn python-xlib's errors, such as a display that is gone, into `GameError`."""
    from Xlib.error import ConnectionClosedError, XError

    try:
        yield
    except (ConnectionClosedError, XError, OSError) as error:
        raise GameError(f"{what}: expected the X display to answer, found {error}; is the display gone?") from error
