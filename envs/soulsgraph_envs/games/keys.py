"""Keys by name, what presses them and which of them mean a game's controls, and the contract of the game's window.

What a person presses is here too: events of a pygame window by the names that bindings use, and the controls they mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from soulsgraph_envs.core.config import Between, NonEmpty, Where, load_data, read_file, require
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.state import ALL_CONTROLS, Control

#: The keys by name, and what others call them.
KEYS: dict[str, Any] = read_file(Where(Path(__file__).parents[1] / "data" / "keys.toml"))
KEY_NAMES: tuple[str, ...] = tuple(KEYS["names"])
#: What a gamepad has: a person may press it in place of a key, a device never does.
PAD_NAMES: tuple[str, ...] = tuple(KEYS["pad"])


@runtime_checkable
class KeyDevice(Protocol):
    """Press and release keys, named as in the bindings: "w", "space", "left_shift", "mouse_left"."""

    def check(self, key: str) -> None:
        """Raise `GameError` if the device has no such key."""

    def press(self, key: str) -> None:
        """Send a key down."""

    def release(self, key: str) -> None:
        """Send a key up; releasing one that is up does no harm."""

    def close(self) -> None:
        """Close the device; a second call does nothing."""


def check_key(key: str, known: Collection[str] = KEY_NAMES, kind: str = "key") -> None:
    """Refuse a name that no key has.

    Raises:
        GameError: naming the key nearest to it.
    """
    if key not in known:
        raise GameError(str(UnknownNameError(kind, key, known)))


class Geometry(NamedTuple):
    """A window's inside on its screen, in pixels."""

    x: int
    y: int
    width: int
    height: int


class WindowInfo(NamedTuple):
    """A window as the system lists it: its title, its process (0 if unknown), and how the system names it."""

    title: str
    pid: int
    handle: Any


class Window(Protocol):
    """One window of a running program; every method raises `GameError` once it is gone."""

    title: str

    def focus(self) -> None:
        """Bring it to the front, so that keys reach it."""

    def focused(self) -> bool:
        """Return whether keys reach it; never those of a minimised window."""

    def geometry(self) -> Geometry:
        """Return its place and size."""

    def capture(self) -> Picture:
        """Capture its inside; raises `GameError` for a minimised window."""

    def close(self) -> None:
        """Release it; a second call does nothing."""


def choose_window(shown: Sequence[WindowInfo], title: str, pid: int, inner_pid: int = 0) -> WindowInfo:
    """Choose the one window of a title, a process, or both.

    `inner_pid` is the process's id within its own PID namespace, by which it names itself in a container; a
    window of `pid` comes first.

    Raises:
        GameError: if there is none, or more than one.
    """
    titled = [window for window in shown if title in ("", window.title)]
    fitting = [window for window in titled if pid in (0, window.pid)]
    fitting = fitting or [window for window in titled if inner_pid and window.pid == inner_pid]
    if len(fitting) == 1:
        return fitting[0]
    wanted = " ".join([f"titled {title!r}"] * bool(title) + [f"of process {pid}"] * bool(pid))
    listed = ", ".join(map(_with_process, fitting or titled or shown)) or "none at all"
    raise GameError(
        f"expected one window {wanted}, found {listed}; show the game's window, or name its process in the games file."
    )


def rgb_of(bgra: bytes, height: int, width: int) -> Picture:
    """Return pixels of blue, green, red and a byte more as (height, width, 3) RGB."""
    pixels = np.frombuffer(bgra, np.uint8).reshape(height, width, 4)
    return np.ascontiguousarray(pixels[:, :, 2::-1])


def minimised(title: str) -> GameError:
    """Make the error of a window that shows nothing because it is minimised."""
    return GameError(f"window {title!r}: expected it on the screen, found it minimised; restore it.")


def _with_process(window: WindowInfo) -> str:
    return f"{window.title!r} of {f'process {window.pid}' if window.pid else 'a process that it does not name'}"


#: Keys that must be down together, in the order they are pressed.
Keys = tuple[str, ...]


class TickKeys(NamedTuple):
    """The keys of one control tick: those down all through it, and those tapped within it."""

    held: Keys
    tapped: Keys


@dataclass(frozen=True)
class Bindings:
    """Keys by the control's name in lower case; a control in neither table has no key.

    A combination of directions, such as a diagonal, presses their keys together.
    """

    name: str
    #: Game time that a tapped key stays down.
    tap_s: Annotated[float, Between(0.01, 1.0)]
    hold: dict[str, NonEmpty[str]]
    tap: dict[str, NonEmpty[str]]
    #: Other keys that the game takes for a control; this side presses the first ones.
    also: dict[str, NonEmpty[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owners: dict[Keys, str] = {}
        for table in ("hold", "tap", "also"):
            known = (*KEY_NAMES, *PAD_NAMES) if table == "also" else KEY_NAMES
            for control, keys in getattr(self, table).items():
                place = f"{table}.{control}"
                require(
                    control in _names(ALL_CONTROLS), place, f"be one of the controls {', '.join(_names(ALL_CONTROLS))}"
                )
                for index, key in enumerate(keys):
                    said = f"be the name of a key, such as 'w', 'left_shift', 'mouse_left', found {key!r}"
                    require(key in known, f"{place}[{index}]", said)
                require(keys not in owners, place, f"have keys of its own, found those of {owners.get(keys)}")
                owners[keys] = control
        for control in self.hold.keys() & self.tap.keys():
            require(False, f"hold.{control}", "be in one of the tables hold and tap")
        for control in self.also.keys() - self._bound.keys():
            require(False, f"also.{control}", "be in hold or tap as well")

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that may be pressed, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self._bound.values())))

    @property
    def controls(self) -> Control:
        """The controls that have a key."""
        return Control(sum(Control[name.upper()] for name in self._bound))

    def keys_for(self, controls: int) -> TickKeys:
        """Return the keys of one tick's controls, directions first.

        Raises:
            GameError: naming a control that has no key.
        """
        missing = Control(controls) & ~self.controls
        if missing:
            names = ", ".join(_names(missing))
            raise GameError(f"bindings {self.name}: expected a key for {names}, found none; name one in the bindings.")
        return TickKeys(_keys_of(self.hold, controls), _keys_of(self.tap, controls))

    def controls_of(self, down: Collection[str]) -> Control:
        """Return the controls all of whose keys are down: `keys_for` the other way round.

        Keys that are part of a longer combination that is down count only for that one.
        """
        now = set(down)
        bound = (*self._bound.items(), *self.also.items())
        pressed = [(name, set(keys)) for name, keys in bound if now.issuperset(keys)]
        meant = (Control[name.upper()] for name, keys in pressed if not any(keys < others for _, others in pressed))
        return reduce(or_, meant, Control.NONE)

    @property
    def _bound(self) -> dict[str, Keys]:
        return self.hold | self.tap


def load_bindings(name_or_path: str | Path) -> Bindings:
    """Load shipped bindings by name, or a file of your own.

    Raises:
        UnknownNameError: if no shipped bindings have that name.
        DataError: for a missing or misspelt value, a key or control that does not exist, or one named twice.
    """
    return load_data("bindings", Bindings, name_or_path)


def _names(controls: int) -> list[str]:
    return [str(control.name).lower() for control in Control(controls)]


def _keys_of(table: dict[str, Keys], controls: int) -> Keys:
    """Return the keys of some controls, each once."""
    return tuple(dict.fromkeys(key for name in _names(controls) for key in table.get(name, ())))


_KEY_NAMES = {theirs: ours for ours, theirs in KEYS["pygame"].items()}
#: Letters and digits by SDL's number of their place: the alphabet from 4 on, then 1 to 0.
_PLACES = {4 + number: key for number, key in enumerate("abcdefghijklmnopqrstuvwxyz1234567890")}
_MOUSE = {number: name for name, number in KEYS["pygame_buttons"].items()}
_BUTTONS = {number: name for name, number in KEYS["sdl_pad_buttons"].items()}
_AXES = {(number, way): name for name, (number, way) in KEYS["sdl_pad_axes"].items()}
#: A stick counts from this share of its way on, and as long as it stays above the other.
_PUSHED, _LET_GO = 0.5, 0.35
_FULL = 32768


class WindowEvent(NamedTuple):
    """What happened to a window: a key went down or came up, nobody hears keys any more, or it is to be closed."""

    kind: Literal["press", "release", "blur", "close"]
    key: str = ""


class Inputs:
    """Read events of pygame, and of its gamepads from `open_pads` on, those plugged in later too."""

    def __init__(self, pygame: Any) -> None:
        self._pygame = pygame
        self._pads: dict[int, Any] = {}
        self._pushed: set[str] = set()

    def open_pads(self) -> None:
        """Hear gamepads from now on; one that SDL knows no layout of stays unheard."""
        from pygame._sdl2 import controller

        controller.init()

    def read(self, events: Iterable[Any]) -> list[WindowEvent]:
        """Return what happened, in order."""
        return [happened for event in events for happened in self._read(event)]

    def _read(self, event: Any) -> list[WindowEvent]:
        pygame = self._pygame
        if event.type in (pygame.KEYDOWN, pygame.KEYUP):
            name = _PLACES.get(getattr(event, "scancode", 0)) or pygame.key.name(event.key)
            key = _KEY_NAMES.get(name, name).replace(" ", "_")
            return [WindowEvent("press" if event.type == pygame.KEYDOWN else "release", key)]
        if event.type in (pygame.MOUSEBUTTONDOWN, pygame.MOUSEBUTTONUP) and event.button in _MOUSE:
            return [WindowEvent("press" if event.type == pygame.MOUSEBUTTONDOWN else "release", _MOUSE[event.button])]
        if event.type == pygame.WINDOWFOCUSLOST:
            self._pushed.clear()
            return [WindowEvent("blur")]
        return [WindowEvent("close")] if event.type == pygame.QUIT else self._read_pad(event)

    def _read_pad(self, event: Any) -> list[WindowEvent]:
        pygame = self._pygame
        if event.type in (pygame.CONTROLLERBUTTONDOWN, pygame.CONTROLLERBUTTONUP) and event.button in _BUTTONS:
            down = event.type == pygame.CONTROLLERBUTTONDOWN
            return [WindowEvent("press" if down else "release", _BUTTONS[event.button])]
        if event.type == pygame.CONTROLLERAXISMOTION:
            return self._read_axis(event.axis, event.value / _FULL)
        if event.type == pygame.CONTROLLERDEVICEADDED:
            self._open(event.device_index)
        elif event.type == pygame.CONTROLLERDEVICEREMOVED:
            self._pads.pop(event.instance_id, None)
            self._pushed.clear()
            # Nobody hears its buttons come up.
            return [WindowEvent("blur")]
        return []

    def _open(self, index: int) -> None:
        from pygame._sdl2 import controller

        if index < controller.get_count() and controller.is_controller(index):
            pad = controller.Controller(index)
            self._pads[pad.as_joystick().get_instance_id()] = pad

    def _read_axis(self, axis: int, value: float) -> list[WindowEvent]:
        happened = []
        for way in (-1, 1):
            name = _AXES.get((axis, way))
            if name is None:
                continue
            if name in self._pushed and value * way < _LET_GO:
                self._pushed.discard(name)
                happened.append(WindowEvent("release", name))
            elif name not in self._pushed and value * way > _PUSHED:
                self._pushed.add(name)
                happened.append(WindowEvent("press", name))
        return happened


class Keyboard:
    """The keys that are `down`, and those that went down since the last frame.

    A tapped control counts once for each press, however long the key stays down; a held one counts
    as long as its keys are down, and for one frame at least.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self.down: set[str] = set()
        self._pressed: set[str] = set()
        self._taps = Control(sum(Control[name.upper()] for name in bindings.tap))

    @property
    def help(self) -> str:
        """What the keys do, in a line."""
        steps = "".join(key for keys in self._bindings.hold.values() for key in keys)
        taps = [f"{'+'.join(keys)} {control.replace('_', ' ')}" for control, keys in self._bindings.tap.items()]
        return f"{steps} move and look, {', '.join(taps)}"

    def name_of(self, control: str) -> str:
        """Return the keys of a tapped control, by its name in the bindings, as people read them."""
        return "+".join(self._bindings.tap.get(control, ("its key",)))

    def press(self, key: str) -> None:
        """Record a key that goes down."""
        self.down.add(key)
        self._pressed.add(key)

    def release(self, key: str) -> None:
        """Record a key that comes up."""
        self.down.discard(key)

    def release_all(self) -> None:
        """Record that the window no longer receives keys."""
        self.down.clear()

    def controls(self) -> Control:
        """Return the controls of a frame, and start the next frame."""
        down = self._bindings.controls_of(self.down | self._pressed)
        steady = self._bindings.controls_of(self.down - self._pressed)
        self._pressed.clear()
        return down & ~(self._taps & steady)
