from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fakes.keys import PlainWindow, virtual_screen
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.guarded_device import GuardedDevice, HeldKeys, find_window, open_key_device
from soulsgraph_envs.games.keys import KEY_NAMES, WindowInfo, choose_window
from soulsgraph_envs.games.x11 import XTestDevice, open_display

#: Holds keys, says so, and then ends the way its last line says.
HOLDING = """
import os, signal, sys, time
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.guarded_device import open_key_device
signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored where the tests run in the background.
held = HeldKeys(open_key_device(sys.argv[1]))
held.hold(("w", "a", "mouse_left"))
print("holding", flush=True)
"""


@pytest.fixture
def shown(display: str) -> Iterator[PlainWindow]:
    window = PlainWindow(display, "DARK SOULS III")
    yield window
    window.close()


def test_the_display_itself_counts_every_key_down_and_up(device: XTestDevice) -> None:
    for key in KEY_NAMES:
        device.press(key)
    # X tells no state of the mouse's extra buttons.
    assert device.down() == tuple(key for key in KEY_NAMES if key not in ("mouse_back", "mouse_forward"))
    for key in KEY_NAMES:
        device.release(key)
    assert device.down() == ()


@pytest.mark.parametrize("asked", [open_key_device, find_window])
def test_a_missing_package_and_display_are_refused_by_name(
    asked: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GameError, match=":250"):
        asked(display=":250")
    monkeypatch.setattr("soulsgraph_envs.games.x11.Display", None)
    with pytest.raises(GameError, match="python-xlib"):
        asked(display=":250")


def test_a_device_that_is_closed_or_whose_display_went_away_or_that_a_guard_cannot_open_is_refused() -> None:
    class Local(XTestDevice):
        """A class that no other process can import."""

    with virtual_screen() as display:
        closed, device = XTestDevice(display), XTestDevice(display)
        closed.close()
        closed.close()
        with pytest.raises(GameError, match="closed"):
            closed.press("w")
        with pytest.raises(GameError, match="guard"):
            GuardedDevice(Local, display)
        device.press("w")
    with pytest.raises(GameError, match="display"):
        device.press("a")
    device.close()


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "os.fork() or sys.stdin.read(); os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_no_key_stays_down_however_the_process_ends(display: str, device: XTestDevice, ending: str) -> None:
    command = [sys.executable, "-c", HOLDING + "sys.stdin.readline()\n" + ending, display]
    pipe = subprocess.PIPE
    # A process that it forked, which holds the pipe to the guard open, waits until ours are closed.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"holding\n"
        assert device.down() == ("a", "w", "mouse_left")
        child.stdin.write(b"go\n")
        child.stdin.flush()
        assert child.wait(PATIENCE_S) != 0
        assert until(lambda: device.down() == ())


def test_a_guard_that_was_ended_is_replaced_with_all_it_knew(display: str, device: XTestDevice) -> None:
    guarded = open_key_device(display)
    held = HeldKeys(guarded)
    held.hold(("w",))
    guard = guards_of(os.getpid())
    assert len(guard) == 1
    os.kill(guard[0], signal.SIGKILL)
    assert until(lambda: ended(guard[0]))
    held.hold(("w", "a"))
    assert len(guards_of(os.getpid())) == 1
    # Without a word to the device: only the guard knows what to let up.
    guarded.close()
    assert device.down() == ()
    assert not guards_of(os.getpid())


def ended(process: int) -> bool:
    """Return whether a process is gone or a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def guards_of(process: int) -> list[int]:
    """Find the guards of a process: their arguments name it, and they are not its children."""
    found = []
    for folder in os.listdir("/proc"):
        try:
            with open(f"/proc/{folder}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
        except OSError:
            continue
        if b"soulsgraph_envs.games.guarded_device" in arguments and str(process).encode() in arguments:
            found.append(int(folder))
    return found


def test_a_window_is_brought_to_the_front_keyed_measured_and_photographed(
    display: str, device: XTestDevice, shown: PlainWindow
) -> None:
    other = PlainWindow(display, "other", x=1000)
    window, elsewhere = (find_window(title, display=display) for title in ("DARK SOULS III", "other"))
    window.focus()
    assert window.focused()
    device.press("w")
    device.release("w")
    assert (shown.keycodes(), other.keycodes()) == ([25, 25], [])
    assert window.geometry() == (30, 20, 80, 50)
    until(lambda: np.array_equal(window.capture()[0, 0], [0x10, 0xC0, 0x20]))
    picture = window.capture()
    assert picture.shape == (50, 80, 3)
    assert (picture[:, :10] == [0x10, 0xC0, 0x20]).all()
    assert (picture[:, 10:] == [0xC0, 0x20, 0x10]).all()
    elsewhere.focus()
    assert not window.focused()
    # It leaves the screen.
    with pytest.raises(GameError, match="other"):
        elsewhere.capture()
    other.close()
    for call in (elsewhere.focus, elsewhere.focused, elsewhere.geometry, elsewhere.capture):
        with pytest.raises(GameError, match="other"):
            call()
    for one in (window, elsewhere):
        one.close()


def test_a_minimised_window_has_no_keyboard_and_no_picture_and_comes_back_to_the_front(
    display: str, shown: PlainWindow
) -> None:
    shown.set_minimised(True)
    window = find_window("DARK SOULS III", display=display)
    assert (shown.mapped, window.focused()) == (False, False)
    window.focus()
    assert shown.mapped
    # What a window manager notes once it has restored it.
    shown.set_minimised(False)
    assert window.focused()
    # Those that show previews keep it mapped, and X may leave it the keyboard.
    shown.set_minimised(True, mapped=True)
    assert not window.focused()
    with pytest.raises(GameError, match="minimised"):
        window.capture()
    window.close()


def test_windows_are_chosen_by_title_and_by_process_before_its_id_in_a_namespace() -> None:
    own, other = WindowInfo("twin", 4001, None), WindowInfo("twin", 7, None)
    assert choose_window([other, own], "twin", 4001, inner_pid=7) == own
    assert choose_window([other], "twin", 4001, inner_pid=7) == other
    assert choose_window([other, own], "", 7) == other
    for shown, title, pid, named in (
        ([other], "twin", 4001, "4001.*7"),
        ([other, own], "twin", 0, "7.*4001"),
        ([own], "ELDEN RING", 0, "ELDEN RING.*twin"),
    ):
        with pytest.raises(GameError, match=named):
            choose_window(shown, title, pid)


#: What a French keyboard prints on keys that an English one has otherwise, by X's number of the key.
AZERTY = {24: "a", 25: "z", 38: "q", 52: "w", 47: "m", 58: "comma"}


def test_keys_are_pressed_by_their_place_whatever_the_layout_prints_on_them() -> None:
    from Xlib import XK

    with virtual_screen() as display:
        connection = open_display(display)
        for code, name in AZERTY.items():
            connection.change_keyboard_mapping(code, [(XK.string_to_keysym(name),)])
        connection.sync()
        with closing(XTestDevice(display)) as device:
            for key, code in {"w": 25, "a": 38, "q": 24, "m": 58, "5": 14, "space": 65}.items():
                device.press(key)
                down = connection.query_keymap()
                assert [8 * byte + bit for byte in range(32) for bit in range(8) if down[byte] >> bit & 1] == [code]
                assert device.down() == (key,)
                device.release(key)
        connection.close()
