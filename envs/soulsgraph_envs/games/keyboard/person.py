"""What a person presses: events of a pygame window by the names that bindings use, and the controls they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.keyboard.device import KEYS, Bindings

_KEY_NAMES = {theirs: ours for ours, theirs in KEYS["pygame"].items()}
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
            name = pygame.key.name(event.key)
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
