"""The mouse of an X display, and what is down on its keyboard and mouse."""

from __future__ import annotations

import threading

from soulsgraph_envs.keys.device import MOUSE_BUTTONS
from soulsgraph_envs.keys.xtest import XTestDevice, open_display, raised_as
from soulsgraph_envs.siphon.keys import to_siphon

_STEP_S = 0.01


class DesktopInput:
    """Move the mouse and report what is down, whoever pressed it; thread-safe.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._display = open_display(display)
        self._device = XTestDevice(display)

    def move_mouse(self, right: int, down: int, steps: int) -> None:
        """Move the mouse by pixels in a number of steps, 10 ms apart; `close` ends it."""
        from Xlib import X
        from Xlib.ext.xtest import fake_input

        x = y = 0
        for step in range(1, steps + 1):
            if self._ending.wait(_STEP_S if step > 1 else 0.0):
                return
            to_x, to_y = right * step // steps, down * step // steps
            with self._lock, raised_as("mouse"):
                # Detail 1: relative to where it is.
                fake_input(self._display, X.MotionNotify, 1, x=to_x - x, y=to_y - y)
                self._display.sync()
            x, y = to_x, to_y

    def down(self) -> list[str]:
        """Return the keys and mouse buttons that are down, by the names of Siphon's recordings."""
        with self._lock:
            down = self._device.down()
        return [("MOUSE_" if key in MOUSE_BUTTONS else "") + to_siphon(key) for key in down]

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        self._ending.set()
        with self._lock:
            self._device.close()
            self._display.close()
