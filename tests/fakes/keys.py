"""For tests: a virtual screen, windows on it and on Windows, devices that record their calls and check their caller."""

from __future__ import annotations

import string
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.keys import check_key
from soulsgraph_envs.games.x11 import open_display


class KeyEvent(NamedTuple):
    """One key that went down or up."""

    action: Literal["press", "release"]
    key: str


class FakeDevice:
    """A key device that keeps its `events` and what is `down`, and checks its caller.

    `heard` gets each event before it counts.

    Raises:
        GameError: for an unknown key, a key pressed while it is down, and any use of a closed device.
    """

    def __init__(self, heard: Callable[[KeyEvent], None] = lambda _: None) -> None:
        self._heard = heard
        self.events: list[KeyEvent] = []
        self.down: set[str] = set()
        self.closed = False

    def check(self, key: str) -> None:
        """Raise `GameError` unless bindings may name the key."""
        check_key(key)

    def press(self, key: str) -> None:
        """Send a key down that is up."""
        self._demand(key not in self.down, f"{key!r} up before it is pressed", "it down")
        self._send(KeyEvent("press", key))
        self.down.add(key)

    def release(self, key: str) -> None:
        """Send a key up."""
        self._send(KeyEvent("release", key))
        self.down.discard(key)

    def _send(self, event: KeyEvent) -> None:
        self._demand(not self.closed, "an open device", "a closed one")
        self.check(event.key)
        self._heard(event)
        self.events.append(event)

    def close(self) -> None:
        """Close the device, which must not be done with a key down; a second call does nothing."""
        self._demand(not self.down, "every key up before the device is closed", sorted(self.down))
        self.closed = True

    def _demand(self, met: bool, expected: str, found: object) -> None:
        if not met:
            raise GameError(f"the caller of the fake key device: expected {expected}, found {found}.")


class FakePyDirectInputRgx:
    """The part of pydirectinput-rgx 2.1.3.1 that `DirectInputDevice` uses; `sent` lists its calls."""

    KEYBOARD_MAPPING: ClassVar[frozenset[str]] = frozenset(
        [*string.ascii_lowercase, *string.digits, *(f"f{number}" for number in range(1, 13))]
        + ["space", "enter", "esc", "escape", "tab", "backspace", "up", "down", "left", "right"]
        + [f"{key}{side}" for key in ("shift", "ctrl", "alt") for side in ("left", "right")]
    )

    def __init__(self) -> None:
        self.PAUSE, self.FAILSAFE = 0.1, True
        self.sent: list[str] = []

    def keyDown(self, key: str) -> None:  # noqa: N802
        """Send a key down."""
        self._send("keyDown", key)

    def keyUp(self, key: str) -> None:  # noqa: N802
        """Send a key up."""
        self._send("keyUp", key)

    def mouseDown(self, button: str) -> None:  # noqa: N802
        """Send a mouse button down."""
        self._send("mouseDown", button)

    def mouseUp(self, button: str) -> None:  # noqa: N802
        """Send a mouse button up."""
        self._send("mouseUp", button)

    def _send(self, call: str, key: str) -> None:
        if self.PAUSE or self.FAILSAFE:
            raise GameError("the caller of the fake pydirectinput: expected no pause and no fail-safe, found them on.")
        self.sent.append(f"{call} {key}")


class FakeUser32(SimpleNamespace):
    """The part of user32 that `User32Window` uses, for one window; `alive`, `front` and `minimised` are its state.

    Like Windows at times, it keeps a minimised window at the front, with an inside of 0 x 0 pixels
    far outside the screen.
    """

    alive: bool
    front: bool
    minimised: bool

    def __init__(self, handle: int) -> None:
        # Functions and no methods: their callers set restype on them.
        super().__init__(
            IsWindow=lambda asked: self._is_here(asked),
            IsIconic=lambda asked: self._is_here(asked) and self.minimised,
            GetForegroundWindow=lambda: handle if self.front else 0,
            SetForegroundWindow=lambda asked: self._set(asked, front=True),
            ShowWindow=lambda asked, command: self._set(asked, minimised=command != 9),
            GetClientRect=lambda asked, to: self._fill(asked, to, right=800, bottom=450),
            ClientToScreen=lambda asked, to: self._fill(asked, to, x=0, y=0),
        )
        self.handle = handle
        self.alive, self.front, self.minimised = True, False, False

    def _is_here(self, asked: Any) -> bool:
        return bool(asked.value == self.handle and self.alive)

    def _set(self, asked: Any, **state: bool) -> bool:
        if self._is_here(asked):
            self.__dict__.update(state)
        return self._is_here(asked)

    def _fill(self, asked: Any, to: Any, **values: int) -> bool:
        for name, value in values.items():
            far = -32000 if name in "xy" else 0
            setattr(to._obj, name, far if self.minimised else value)
        return self._is_here(asked)


class PlainWindow:
    """A red window of 80 x 50 pixels with a green stripe 10 wide at its left, that receives keys."""

    RED, GREEN = 0xC02010, 0x10C020

    def __init__(self, display: str, title: str, x: int = 30, pid: int = 0) -> None:
        from Xlib import X, Xatom

        self._display = open_display(display)
        screen = self._display.screen()
        look = {"background_pixel": self.RED, "event_mask": X.KeyPressMask | X.KeyReleaseMask}
        window = screen.root.create_window(x, 20, 80, 50, 0, screen.root_depth, **look)
        window.set_wm_name(title)
        if pid:
            window.change_property(self._display.intern_atom("_NET_WM_PID"), Xatom.CARDINAL, 32, [pid])
        window.map()
        window.create_window(0, 0, 10, 50, 0, screen.root_depth, background_pixel=self.GREEN).map()
        self._display.sync()
        self._window = window

    def set_minimised(self, minimised: bool, mapped: bool = False) -> None:
        """Minimise the window as window managers do, some of which keep it `mapped`, or restore it."""
        from Xlib.Xutil import IconicState, NormalState

        kind = self._display.intern_atom("WM_STATE")
        self._window.change_property(kind, kind, 32, [IconicState if minimised else NormalState, 0])
        if minimised and not mapped:
            self._window.unmap()
        self._display.sync()

    @property
    def mapped(self) -> bool:
        """Whether the window is on the screen, visible or covered by others."""
        from Xlib import X

        return bool(self._window.get_attributes().map_state == X.IsViewable)

    def keycodes(self) -> list[int]:
        """Return the keys that went down and up over the window since the last call, by X's key codes."""
        self._display.sync()
        return [self._display.next_event().detail for _ in range(self._display.pending_events())]

    def close(self) -> None:
        """Close the window; it is gone from the screen when this returns."""
        self._window.destroy()
        self._display.sync()
        self._display.close()


@contextmanager
def virtual_screen() -> Iterator[str]:
    """Run a virtual X server, which is Debian's package xvfb, on a free display and yield its name, such as ":99"."""
    command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1024x768x24", "-nolisten", "tcp", "-noreset"]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdout=pipe, stderr=nowhere, start_new_session=True) as server:
        assert server.stdout is not None
        try:
            yield f":{int(server.stdout.readline())}"
        finally:
            server.terminate()
