from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fakes.keys import PlainWindow, virtual_screen
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.guarded_device import GuardedDevice, HeldKeys, find_window, keyboard_layout, open_key_device
from soulsgraph_envs.games.keys import KEY_NAMES, choose_window
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


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    with virtual_screen() as name:
        yield name


@pytest.fixture
def device(display: str) -> Iterator[XTestDevice]:
    device = XTestDevice(display)
    yield device
    device.close()


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


def test_an_unknown_key_is_refused_with_the_nearest(device: XTestDevice) -> None:
    with pytest.raises(GameError, match=r"unknown key.*Did you mean 'left_shift'"):
        device.press("leftshift")


def test_a_closed_device_says_so(display: str) -> None:
    device = XTestDevice(display)
    device.close()
    device.close()
    with pytest.raises(GameError, match="an open device"):
        device.press("w")


def test_a_missing_display_is_told_with_its_remedy() -> None:
    with pytest.raises(GameError, match=r"X display ':250'.*xvfb-run"):
        open_key_device(":250")


@pytest.mark.parametrize("asked", ["keyboard_layout()", "open_key_device()", "find_window('DARK SOULS III')"])
def test_a_missing_package_is_told_with_its_remedy(asked: str) -> None:
    hidden = "import sys; sys.modules['Xlib'] = None; from soulsgraph_envs.games.guarded_device import *; "
    found = subprocess.run([sys.executable, "-c", hidden + asked], capture_output=True, text=True)
    assert "GameError: expected python-xlib to be installed, found none; install it:" in found.stderr.splitlines()[-1]


def test_a_display_that_went_away_ends_in_one_line() -> None:
    with virtual_screen() as display:
        device = XTestDevice(display)
        device.press("w")
    with pytest.raises(GameError, match="the X display to answer"):
        device.press("a")
    device.close()


def test_a_guard_whose_display_went_away_ends_without_a_word() -> None:
    pipe = subprocess.PIPE
    with virtual_screen() as display:
        command = [sys.executable, "-c", HOLDING + "sys.stdin.readline()\nos._exit(1)", display]
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert child.stdout is not None
        assert child.stdout.readline() == b"holding\n"
    # At its end comes the guard's, which has the same output for errors.
    assert child.communicate(b"go\n") == (b"", b"")


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "os._exit(1)",
        "raise RuntimeError",
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


def test_a_guard_that_cannot_open_its_device_says_why(display: str) -> None:
    class Local(XTestDevice):
        """A class that no other process can import."""

    with pytest.raises(GameError, match="guard of the keys: expected it to open the device"):
        GuardedDevice(Local, display)


def test_keys_reach_the_window_that_was_brought_to_the_front(
    display: str, device: XTestDevice, shown: PlainWindow
) -> None:
    other = PlainWindow(display, "other")
    window = find_window("DARK SOULS III", display=display)
    window.focus()
    assert window.focused()
    device.press("w")
    device.release("w")
    assert shown.keycodes() == [25, 25]
    assert other.keycodes() == []
    elsewhere = find_window("other", display=display)
    elsewhere.focus()
    assert not window.focused()
    for shown in (window, elsewhere, other):
        shown.close()


def test_a_window_is_measured_and_photographed(display: str, shown: PlainWindow) -> None:
    window = find_window("DARK SOULS III", display=display)
    assert window.geometry() == (30, 20, 80, 50)
    window.focus()
    assert until(lambda: np.array_equal(window.capture()[0, 0], [0x10, 0xC0, 0x20]))
    picture = window.capture()
    assert picture.shape == (50, 80, 3)
    assert (picture[:, :10] == [0x10, 0xC0, 0x20]).all()
    assert (picture[:, 10:] == [0xC0, 0x20, 0x10]).all()
    window.close()


def test_a_picture_of_a_window_that_leaves_the_screen_is_refused(display: str) -> None:
    shown = PlainWindow(display, "outside", x=1000)
    window = find_window("outside", display=display)
    with pytest.raises(GameError, match="outside"):
        window.capture()
    window.close()
    shown.close()


def test_windows_of_one_title_are_told_apart_by_their_process(display: str) -> None:
    pair = [PlainWindow(display, "twin", pid=pid) for pid in (4001, 4002)]
    with pytest.raises(GameError, match=r"one window titled 'twin', found 2: .*4001.*4002"):
        find_window("twin", display=display)
    window = find_window(pid=4002, display=display)
    assert window.title == "twin"
    window.close()
    for shown in pair:
        shown.close()


def test_a_minimised_window_has_no_keyboard_and_no_picture(display: str, shown: PlainWindow) -> None:
    window = find_window("DARK SOULS III", display=display)
    window.focus()
    # Window managers that show previews keep it mapped, and X may leave it the keyboard.
    shown.set_minimised(True, mapped=True)
    assert not window.focused()
    with pytest.raises(GameError, match=r"'DARK SOULS III'.*found it minimised; restore it"):
        window.capture()
    shown.set_minimised(False)
    assert window.focused()
    window.close()


def test_a_minimised_window_is_found_and_comes_back_to_the_front(display: str, shown: PlainWindow) -> None:
    shown.set_minimised(True)
    assert not shown.mapped
    window = find_window("DARK SOULS III", display=display)
    assert not window.focused()
    window.focus()
    assert shown.mapped
    # What a window manager notes once it has restored it.
    shown.set_minimised(False)
    assert window.focused()
    window.close()


def test_a_window_of_another_pid_namespace_is_found_by_the_games_own_process(display: str) -> None:
    # In a container such as Flatpak's, a program names itself by its id there.
    code = (
        "import os, sys; from fakes.keys import PlainWindow; "
        "shown = PlainWindow(sys.argv[1], 'contained', pid=os.getpid()); print(os.getpid(), flush=True); "
        "sys.stdin.read()"
    )
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid():
        unshare += ["--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("a PID namespace cannot be made here")
    command = [*unshare, sys.executable, "-c", code, display]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        (outer,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        assert outer != inner
        window = find_window("contained", outer, display)
        window.focus()
        assert window.focused()
        window.close()
        with pytest.raises(GameError, match=rf"of process {os.getpid()}, found 'contained' of process {inner}; name"):
            find_window("contained", os.getpid(), display)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_window_of_the_process_itself_comes_before_one_of_its_id_in_a_namespace() -> None:
    class Shown(NamedTuple):
        title: str
        pid: int

    own, other = Shown("twin", 4001), Shown("twin", 7)
    assert choose_window([other, own], "twin", 4001, inner_pid=7) == own
    assert choose_window([other], "twin", 4001, inner_pid=7) == other
    with pytest.raises(GameError, match=r"of process 4001, found 'twin' of process 7"):
        choose_window([other], "twin", 4001)


def test_a_window_that_is_not_there_is_told_with_those_that_are(display: str, shown: PlainWindow) -> None:
    with pytest.raises(GameError, match=r"a window titled 'ELDEN RING', found 'DARK SOULS III'"):
        find_window("ELDEN RING", display=display)


def test_a_window_that_closed_is_an_error(display: str) -> None:
    shown = PlainWindow(display, "closing")
    window = find_window("closing", display=display)
    shown.close()
    for call in (window.focus, window.focused, window.geometry, window.capture):
        with pytest.raises(GameError, match="closing"):
            call()
    window.close()


def test_the_layout_of_the_virtual_screen_is_english(display: str) -> None:
    layout = keyboard_layout(display)
    assert layout.names == ("us",)
    assert layout.english


def test_moved_letters_are_no_english_layout() -> None:
    from Xlib import XK

    with virtual_screen() as display:
        connection = open_display(display)
        connection.change_keyboard_mapping(24, [(XK.string_to_keysym("a"),)])
        connection.sync()
        connection.close()
        assert not keyboard_layout(display).english


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
