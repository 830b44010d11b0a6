"""Open the key device of this system, guarded."""

from __future__ import annotations

import sys

from soulsgraph_envs.keys.guarded_device import GuardedDevice
from soulsgraph_envs.keys.user32 import DirectInputDevice
from soulsgraph_envs.keys.xtest import XTestDevice


def open_key_device(display: str = "") -> GuardedDevice:
    """Open the device that reaches games here: Windows' own, elsewhere an X display ("" is the environment's).

    Raises:
        GameError: if a package is missing or the display cannot be reached.
    """
    if sys.platform == "win32":
        return GuardedDevice(DirectInputDevice)
    return GuardedDevice(XTestDevice, display)
