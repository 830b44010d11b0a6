"""Windows: windows through user32 and gdi32, and keys through DirectInput; not yet tried on a game PC."""

from __future__ import annotations

import ctypes
import struct
import sys
from ctypes import wintypes
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games import keys

#: Some parts of ctypes exist on Windows only.
_CTYPES: Any = ctypes
# Values of winuser.h and wingdi.h.
_SW_RESTORE, _SRCCOPY, _DIB_RGB_COLORS = 9, 0x00CC0020, 0
_MOST_TITLE = 512
_KEYS, _BUTTONS = keys.KEYS["pydirectinput"], keys.KEYS["pydirectinput_buttons"]


class User32Window:
    """One window by its handle; every method but `close` raises `GameError` once it is gone.

    `user32` is Windows' library of that name, loaded if none is given.
    """

    def __init__(self, handle: int, title: str, user32: Any = None) -> None:
        self.title = title
        self._handle = ctypes.c_void_p(handle)
        self._user32 = user32 or _library("user32")

    def focus(self) -> None:
        """Bring the window to the front.

        Raises:
            GameError: if Windows refuses, as it may while the user types in another window.
        """
        if self.focused():
            return
        if self._user32.IsIconic(self._handle):
            self._user32.ShowWindow(self._handle, _SW_RESTORE)
        if not self._user32.SetForegroundWindow(self._handle):
            raise GameError(f"window {self.title!r}: expected it to come to the front, Windows refused; click it once.")

    def focused(self) -> bool:
        """Return whether the window is at the front and not minimised, which it may be even at the front."""
        self._demand(self._user32.IsWindow(self._handle))
        front = self._user32.GetForegroundWindow
        front.restype = ctypes.c_void_p
        return bool(front() == self._handle.value) and not self._user32.IsIconic(self._handle)

    def geometry(self) -> keys.Geometry:
        """Return the place and size of the window's inside; raises `GameError` for a minimised window."""
        inside, corner = wintypes.RECT(), wintypes.POINT()
        self._demand(self._user32.IsWindow(self._handle))
        if self._user32.IsIconic(self._handle):
            raise keys.minimised(self.title)
        self._demand(self._user32.GetClientRect(self._handle, ctypes.byref(inside)))
        self._demand(self._user32.ClientToScreen(self._handle, ctypes.byref(corner)))
        return keys.Geometry(corner.x, corner.y, inside.right, inside.bottom)

    def capture(self) -> Picture:
        """Capture the window's area of the screen."""
        place, gdi32 = self.geometry(), _library("gdi32")
        for function in (self._user32.GetDC, gdi32.CreateCompatibleDC, gdi32.CreateCompatibleBitmap):
            function.restype = ctypes.c_void_p
        screen = ctypes.c_void_p(self._user32.GetDC(None))
        memory = ctypes.c_void_p(gdi32.CreateCompatibleDC(screen))
        bitmap = ctypes.c_void_p(gdi32.CreateCompatibleBitmap(screen, place.width, place.height))
        pixels = ctypes.create_string_buffer(4 * place.height * place.width)
        # BITMAPINFOHEADER: 40 bytes, a plane of 32 bits; a negative height asks for the upper row first.
        header = struct.pack("<I2i2H6I", 40, place.width, -place.height, 1, 32, *bytes(6))
        head = ctypes.create_string_buffer(header, 40)
        try:
            before = ctypes.c_void_p(gdi32.SelectObject(memory, bitmap))
            self._demand(gdi32.BitBlt(memory, 0, 0, place.width, place.height, screen, place.x, place.y, _SRCCOPY))
            gdi32.SelectObject(memory, before)
            rows = gdi32.GetDIBits(screen, bitmap, 0, place.height, pixels, head, _DIB_RGB_COLORS)
            self._demand(rows == place.height)
        finally:
            gdi32.DeleteObject(bitmap)
            gdi32.DeleteDC(memory)
            self._user32.ReleaseDC(None, screen)
        return keys.rgb_of(pixels.raw, place.height, place.width)

    def close(self) -> None:
        """Do nothing: the handle belongs to the game."""

    def _demand(self, answered: object) -> None:
        if not answered:
            raise GameError(f"window {self.title!r}: expected it to answer, it did not; is the game gone?")


def find_user32_window(title: str = "", pid: int = 0) -> User32Window:
    """Find one visible window; see `guarded_device.find_window`."""
    found = keys.choose_window(_visible(), title, pid)
    return User32Window(found.handle, found.title)


def is_key_down(virtual_key: int) -> bool:
    """Return whether Windows counts a key as down, by its virtual-key code of winuser.h."""
    return bool(_library("user32").GetAsyncKeyState(virtual_key) & 0x8000)


def _visible() -> list[keys.WindowInfo]:
    user32, found = _library("user32"), list[keys.WindowInfo]()

    def note(handle: int, _: int) -> bool:
        if user32.IsWindowVisible(ctypes.c_void_p(handle)):
            title, process = ctypes.create_unicode_buffer(_MOST_TITLE), ctypes.c_uint32()
            user32.GetWindowTextW(ctypes.c_void_p(handle), title, _MOST_TITLE)
            user32.GetWindowThreadProcessId(ctypes.c_void_p(handle), ctypes.byref(process))
            if title.value:
                found.append(keys.WindowInfo(title.value, process.value, handle))
        return True

    callback = _CTYPES.WINFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)
    user32.EnumWindows(callback(note), None)
    return found


def _library(name: str) -> Any:
    return getattr(_CTYPES.windll, name)


class DirectInputDevice:
    """Press keys for whatever window has the focus; not yet tried on a running game.

    `sender` is the package's module, imported if none is given.

    Raises:
        GameError: if the package cannot be imported here.
    """

    def __init__(self, sender: Any = None) -> None:
        self._sender = sender or import_sender()
        # By default it waits after each call.
        self._sender.PAUSE = 0
        # The mouse in a corner of the screen would otherwise end the program.
        self._sender.FAILSAFE = False

    def check(self, key: str) -> None:
        """Raise `GameError` if the package cannot send the key."""
        keys.check_key(key)
        if key not in _BUTTONS and _KEYS.get(key, key) not in self._sender.KEYBOARD_MAPPING:
            raise GameError(f"key {key!r}: expected one that pydirectinput can send, found none; bind another.")

    def press(self, key: str) -> None:
        """Send a key down."""
        self._send(key, "Down")

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""
        self._send(key, "Up")

    def close(self) -> None:
        """Do nothing: the package keeps nothing open."""

    def _send(self, key: str, way: str) -> None:
        self.check(key)
        if key in _BUTTONS:
            getattr(self._sender, f"mouse{way}")(button=_BUTTONS[key])
        else:
            getattr(self._sender, f"key{way}")(_KEYS.get(key, key))


def import_sender() -> Any:
    """Import the module `pydirectinput`, which pydirectinput-rgx brings.

    Raises:
        GameError: on a system other than Windows, or if it is not installed.
    """
    try:
        import pydirectinput
    except ModuleNotFoundError as error:
        raise GameError(
            f"expected pydirectinput-rgx to be installed, found none; install it: {pip_install('game')}."
        ) from error
    except (ImportError, AttributeError) as error:
        # Off Windows it installs, and fails at the first look for its libraries.
        raise GameError(f"pydirectinput: expected Windows, found {sys.platform}; use an X display here.") from error
    return pydirectinput
