"""Play one game's controls on its keys."""

from __future__ import annotations

from soulsgraph_envs.controls import Control
from soulsgraph_envs.keys.bindings import Bindings
from soulsgraph_envs.keys.device import KeyDevice
from soulsgraph_envs.keys.held_keys import HeldKeys
from soulsgraph_envs.live.clock import Clock


class Pad:
    """Hold and tap controls on a key device, as bindings say; taps last as long in game time at any speed."""

    def __init__(self, bindings: Bindings, device: KeyDevice, clock: Clock, speed: float) -> None:
        self.bindings = bindings
        self._keys = HeldKeys(device, clock.sleep)
        self._tap_s = bindings.tap_s / speed

    @property
    def down(self) -> tuple[str, ...]:
        """The keys that are down."""
        return self._keys.down

    def check(self) -> None:
        """Raise `GameError` if the device lacks a key of the bindings."""
        for key in self.bindings.keys:
            self._keys.device.check(key)

    def play(self, controls: Control) -> None:
        """Hold what a tick holds, then tap what it taps; what is held stays down."""
        keys = self.bindings.keys_for(controls)
        self._keys.hold(keys.held)
        self._keys.tap(keys.tapped, self._tap_s)

    def loosen(self) -> None:
        """Press and release every key that is held: the game may have missed it coming up, and hold it still."""
        for keys in self.bindings.hold.values():
            self._keys.tap(keys, 0.0)

    def release(self) -> None:
        """Let go of everything."""
        self._keys.release_all()
