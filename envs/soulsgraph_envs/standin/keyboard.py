"""Key events of a window, turned into the controls of a frame."""

from __future__ import annotations

from soulsgraph_envs.controls import Control
from soulsgraph_envs.keys.bindings import Bindings


class Keyboard:
    """What is down, and what went down since the last frame.

    A tapped control counts once for each press, however long the key stays down; a held one counts
    as long as its keys are down, and for one frame at least.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._down: set[str] = set()
        self._pressed: set[str] = set()
        self._taps = Control(sum(Control[name.upper()] for name in bindings.tap))

    @property
    def down(self) -> frozenset[str]:
        """The keys that are down."""
        return frozenset(self._down)

    @property
    def help(self) -> str:
        """What the keys do, in a line."""
        steps = "".join(key for keys in self._bindings.hold.values() for key in keys)
        taps = [f"{'+'.join(keys)} {control.replace('_', ' ')}" for control, keys in self._bindings.tap.items()]
        return f"{steps} move and look, {', '.join(taps)}; F5 pause, F6 speed"

    def press(self, key: str) -> None:
        """Note a key that goes down."""
        self._down.add(key)
        self._pressed.add(key)

    def release(self, key: str) -> None:
        """Note a key that comes up."""
        self._down.discard(key)

    def release_all(self) -> None:
        """Note that the window no longer hears of keys."""
        self._down.clear()

    def controls(self) -> Control:
        """Return the controls of a frame, and begin the next."""
        down = self._bindings.controls_of(self._down | self._pressed)
        steady = self._bindings.controls_of(self._down - self._pressed)
        self._pressed.clear()
        return down & ~(self._taps & steady)
