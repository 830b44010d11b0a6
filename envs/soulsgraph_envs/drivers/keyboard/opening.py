"""Open the key device of this system, guarded; find a window and read the keyboard layout."""

from __future__ import annotations

import sys

from soulsgraph_envs.drivers.keyboard.device import Layout, Window
from soulsgraph_envs.drivers.keyboard.guarded_device import GuardedDevice
from soulsgraph_envs.drivers.keyboard.user32 import DirectInputDevice, find_user32_window, user32_layout
from soulsgraph_envs.drivers.keyboard.x11 import XTestDevice, find_x11_window, x11_layout


def open_key_device(display: str = "") -> GuardedDevice:
    """Open the device that reaches games here: Windows' own, elsewhere an X display ("" is the environment's).

    Raises:
        GameError: if a package is missing or the display cannot be reached.
    """
    if sys.platform == "win32":
        return GuardedDevice(DirectInputDevice)
    return GuardedDevice(XTestDevice, display)


def find_window(title: str = "", pid: int = 0, display: str = "") -> Window:
    """Find a window by its whole title, by its process, or by both.

    Raises:
        GameError: if there is none, or more than one; the message names the titles found.
    """
    if sys.platform == "win32":
        return find_user32_window(title, pid)
    return find_x11_window(title, pid, display)


def keyboard_layout(display: str = "") -> Layout:
    """Return the keyboard's layouts: with any layout other than English, games may get other keys.

    Raises:
        GameError: if the display cannot be reached.
    """
    if sys.platform == "win32":
        return user32_layout()
    return x11_layout(display)
