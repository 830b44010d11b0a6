"""Keys and windows on Linux: X11's XTEST extension, and windows with or, as under Xvfb, without a manager."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games import keys

try:
    from Xlib import XK, X
    from Xlib.display import Display
    from Xlib.error import BadWindow, CatchError, ConnectionClosedError, DisplayError, XError
    from Xlib.ext.xtest import fake_input
    from Xlib.protocol.event import ClientMessage
    from Xlib.Xutil import IconicState
except ImportError:
    Display = None

_KEYSYMS, _BUTTONS = keys.KEYS["x11"], keys.KEYS["x11_buttons"]
#: X's numbers of letters and digits by their places on a PC keyboard.
_PLACES = {key: row["x11"] + number for row in keys.KEYS["rows"].values() for number, key in enumerate(row["keys"])}
#: Keycodes of the six letters in the upper row of a PC keyboard.
_UPPER_ROW = [_PLACES[letter] for letter in "qwerty"]
#: Bit of button 0, if there were one, in the state of the pointer: eight modifiers come before button 1.
_FIRST_BUTTON = 7


class XTestDevice:
    """Press keys of an X display, which may be a virtual one; "" is the display of the environment.

    Letters and digits are pressed by their place, whatever layout the keyboard has.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self._display: Any = open_display(display)
        if not self._display.query_extension("XTEST"):
            raise GameError(f"X display {display or 'of the environment'}: expected the extension XTEST, found none.")
        # Some virtual displays number their keys otherwise: those are found by what they print.
        row = [XK.keysym_to_string(self._display.keycode_to_keysym(code, 0)) for code in _UPPER_ROW]
        self._by_place = all(letter is not None and letter.isalpha() for letter in row)

    def check(self, key: str) -> None:
        """Raise `GameError` if the keyboard has no such key."""
        if key not in _BUTTONS:
            self._keycode(key)

    def press(self, key: str) -> None:
        """Send a key down, and wait until the display has taken it."""
        self._send(key, down=True)

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""
        self._send(key, down=False)

    def down(self) -> tuple[str, ...]:
        """Return the keys that the display counts as down, whoever pressed them."""
        with raised_as("keys down"):
            keymap = self._open().query_keymap()
            buttons = self._open().screen().root.query_pointer().mask >> _FIRST_BUTTON
        pressed = {code for code in range(8 * len(keymap)) if keymap[code // 8] >> code % 8 & 1}
        typed = (key for key in keys.KEY_NAMES if key not in _BUTTONS and self._keycode(key) in pressed)
        return (*typed, *(key for key, number in _BUTTONS.items() if buttons >> number & 1))

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        if self._display is not None:
            close_display(self._display)
            self._display = None

    def _send(self, key: str, down: bool) -> None:
        if key in _BUTTONS:
            kind, detail = (X.ButtonPress if down else X.ButtonRelease), _BUTTONS[key]
        else:
            kind, detail = (X.KeyPress if down else X.KeyRelease), self._keycode(key)
        with raised_as(f"key {key!r}"):
            fake_input(self._open(), kind, detail)
            self._display.sync()

    def _open(self) -> Any:
        if self._display is None:
            raise GameError("keys: expected an open device, found a closed one.")
        return self._display

    def _keycode(self, key: str) -> int:
        keys.check_key(key)
        keycode = _PLACES.get(key) if self._by_place else None
        keycode = keycode or self._open().keysym_to_keycode(XK.string_to_keysym(_KEYSYMS.get(key, key)))
        if not keycode:
            raise GameError(
                f"key {key!r}: expected it on the keyboard of the display, found none; choose an English layout."
            )
        return int(keycode)


def open_display(name: str = "") -> Any:
    """Connect to an X display; "" is the one of the environment.

    Raises:
        GameError: if python-xlib is not installed or the display cannot be reached.
    """
    if Display is None:
        raise GameError(f"expected python-xlib to be installed, found none; install it: {pip_install('game')}.")
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
    """Disconnect from an X display; does nothing for one that is gone."""
    with suppress(ConnectionClosedError, XError, OSError):
        display.close()


@contextmanager
def raised_as(what: str) -> Iterator[None]:
    """Raise python-xlib's errors, such as a display that is gone, as `GameError`."""
    try:
        yield
    except (ConnectionClosedError, XError, OSError) as error:
        raise GameError(f"{what}: expected the X display to answer, found {error}; is the display gone?") from error


class X11Window:
    """One window, over a display connection of its own.

    Every method but `close` raises `GameError` once the window or its display is gone.
    """

    def __init__(self, display: Any, window: Any, title: str) -> None:
        self.title = title
        self._display, self._window = display, window

    def focus(self) -> None:
        """Bring the window to the front and give it the keyboard."""
        with self._asking():
            if _is_minimised(self._display, self._window):
                # Whoever maps a minimised window restores it (ICCCM 4.1.4).
                self._window.map()
            if _property(self._display, self._root, "_NET_SUPPORTING_WM_CHECK"):
                self._ask_window_manager()
            else:
                self._take_focus()
            self._display.sync()

    def focused(self) -> bool:
        """Return whether the window or one within it has the keyboard's focus; never while it is minimised."""
        with self._asking():
            self._window.get_geometry()
            inner = self._display.get_input_focus().focus
            while not isinstance(inner, int) and inner != self._window:
                inner = inner.query_tree().parent
            return not isinstance(inner, int) and not _is_minimised(self._display, self._window)

    def geometry(self) -> keys.Geometry:
        """Return the window's place and size."""
        with self._asking():
            size = self._window.get_geometry()
            corner = self._root.translate_coords(self._window, 0, 0)
            return keys.Geometry(corner.x, corner.y, size.width, size.height)

    def capture(self) -> Picture:
        """Capture the window, which must lie wholly on the screen with nothing before it.

        Raises:
            GameError: also for a minimised window, and a display without 24 bits of colour.
        """
        with self._asking():
            if _is_minimised(self._display, self._window):
                raise keys.minimised(self.title)
            size = self._window.get_geometry()
            if size.depth not in (24, 32):
                raise GameError(
                    f"{self.title}: expected 24 bits of colour, found {size.depth}; choose another display."
                )
            taken = self._window.get_image(0, 0, size.width, size.height, X.ZPixmap, 0xFFFFFFFF)
        return keys.rgb_of(taken.data, size.height, size.width)

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        close_display(self._display)

    @property
    def _root(self) -> Any:
        return self._display.screen().root

    def _asking(self) -> AbstractContextManager[None]:
        return raised_as(f"window {self.title!r}")

    def _ask_window_manager(self) -> None:
        kind = self._display.intern_atom("_NET_ACTIVE_WINDOW")
        # 2: asked for by the user's own tool, which a window manager does not refuse.
        message = ClientMessage(window=self._window, client_type=kind, data=(32, [2, X.CurrentTime, 0, 0, 0]))
        self._root.send_event(message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)

    def _take_focus(self) -> None:
        self._window.configure(stack_mode=X.Above)
        failed = CatchError()
        self._window.set_input_focus(X.RevertToPointerRoot, X.CurrentTime, onerror=failed)
        self._display.sync()
        if failed.get_error() is not None:
            raise GameError(f"window {self.title!r}: expected it on the screen, found it hidden; show it.")


def find_x11_window(title: str = "", pid: int = 0, display: str = "") -> X11Window:
    """Find one window that is on the screen or minimised; see `guarded_device.find_window`."""
    connection = open_display(display)
    try:
        with raised_as("windows"):
            shown = list(_titled(connection, connection.screen().root))
        found = keys.choose_window(shown, title, pid, _inner_pid(pid))
    except BaseException:
        close_display(connection)
        raise
    return X11Window(connection, found.handle, found.title)


def _titled(display: Any, parent: Any) -> Iterator[keys.WindowInfo]:
    """Return every window on the screen or minimised that has a title, below `parent`."""
    for window in parent.query_tree().children:
        try:
            title = _title(display, window)
            if title and (window.get_attributes().map_state == X.IsViewable or _is_minimised(display, window)):
                process = _property(display, window, "_NET_WM_PID")
                yield keys.WindowInfo(title, int(process[0]) if process else 0, window)
            yield from _titled(display, window)
        except BadWindow:
            # It closed while we looked.
            continue


def _title(display: Any, window: Any) -> str:
    text = _property(display, window, "_NET_WM_NAME") or _property(display, window, "WM_NAME") or b""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def _is_minimised(display: Any, window: Any) -> bool:
    """Return whether the window manager has minimised a window, which it may keep mapped for previews."""
    state = _property(display, window, "WM_STATE")
    return state is not None and int(state[0]) == IconicState


def _inner_pid(pid: int) -> int:
    """Return a process's id within its own PID namespace, 0 if unknown.

    A process in a container, such as Flatpak's, names itself by that id in _NET_WM_PID.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), 0)


def _property(display: Any, window: Any, name: str) -> Any:
    found = window.get_full_property(display.get_atom(name), 0)
    return None if found is None else found.value
