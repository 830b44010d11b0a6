"""Whether keys can be pressed here: the device, its bindings, the way there and back, the layout."""

from __future__ import annotations

import sys
import time

from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.keys.bindings import load_bindings
from soulsgraph_envs.keys.device import KeyDevice
from soulsgraph_envs.keys.held_keys import HeldKeys
from soulsgraph_envs.keys.opening import open_key_device
from soulsgraph_envs.keys.windows import keyboard_layout
from soulsgraph_envs.keys.xtest import XTestDevice

#: No game binds it by default, and it types nothing; with its virtual-key code of winuser.h.
HARMLESS, _CODE = "right_shift", 0xA1
_HELD_S = 0.05
_SCREEN_REMEDY = "start it in the session of the game's window, or name its display in the games file"
_DEVICE, _BINDINGS, _ROUND_TRIP, _LAYOUT = "key device", "key bindings", "key round trip", "keyboard layout"


def check_keyboard(display: str, bindings: str) -> list[Check]:
    """Check the keys of a display ("" is the environment's) against bindings by name or path."""
    checks = Checks("Keys")
    device: KeyDevice | None = None
    with checks.failing(_DEVICE, _SCREEN_REMEDY):
        device = open_key_device(display)
        checks.ok(_DEVICE, "presses keys, and a guard lets them up whatever happens")
    if device is None:
        for name in (_BINDINGS, _ROUND_TRIP, _LAYOUT):
            checks.skip(name, "needs the key device")
        return checks.made
    try:
        check_bindings(checks, device, bindings)
        with checks.failing(_ROUND_TRIP, _SCREEN_REMEDY):
            _check_round_trip(checks, device, display)
        with checks.failing(_LAYOUT, _SCREEN_REMEDY):
            layout = keyboard_layout(display)
            named = ", ".join(layout.names) or "not told"
            remedy = "make an English layout the only one: others, even unused, send games wrong keys"
            checks.judge(_LAYOUT, layout.english, named, remedy)
    finally:
        device.close()
    return checks.made


def check_bindings(checks: Checks, device: KeyDevice, bindings: str) -> None:
    """Check that a device has every key of bindings, and tell the controls that have none; "" names no bindings."""
    if not bindings:
        checks.skip(_BINDINGS, "needs the address map")
        return
    with checks.failing(_BINDINGS, "choose shipped bindings in the games file"):
        loaded = load_bindings(bindings)
        for key in loaded.keys:
            device.check(key)
        unbound = ", ".join(str(control.name).lower() for control in loaded.unbound)
        checks.ok(
            _BINDINGS,
            f"{loaded.name}: {len(loaded.keys)} keys to be set in the game as well"
            + (f"; none for {unbound}" if unbound else ""),
        )


def _check_round_trip(checks: Checks, device: KeyDevice, display: str) -> None:
    began_s = time.perf_counter()
    with HeldKeys(device) as held:
        held.hold((HARMLESS,))
        pressed_ms = 1000 * (time.perf_counter() - began_s)
        time.sleep(_HELD_S)
        arrived = _is_down(display)
    came_up = not _is_down(display)
    if arrived and came_up:
        checks.ok(_ROUND_TRIP, f"{HARMLESS} went down, in {pressed_ms:.1f} ms, and came up")
    else:
        found = f"{HARMLESS} {'stayed down' if arrived else 'never went down'}"
        remedy = "let no other program hold the keyboard, and run this in the session of the game's window"
        checks.fail(_ROUND_TRIP, found, remedy)


def _is_down(display: str) -> bool:
    if sys.platform == "win32":
        from soulsgraph_envs.keys.user32 import is_key_down

        return is_key_down(_CODE)
    observer = XTestDevice(display)
    try:
        return HARMLESS in observer.down()
    finally:
        observer.close()
