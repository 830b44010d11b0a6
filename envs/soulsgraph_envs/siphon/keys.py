"""The keys of a game PC, pressed through its Siphon server."""

from __future__ import annotations

from collections.abc import Iterable

from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.siphon.calls import SiphonCalls
from soulsgraph_envs.siphon.key_names import SIPHON_KEYS, to_siphon

#: A server answers a tap when it is over, which on a busy machine may be late: its keys are up again either way.
_SLACK_S = 5.0


class SiphonKeys:
    """A key device over Siphon's InputKeyToggle; every key held is released by `close`.

    Siphon's own server is known to toggle keyboard keys; mouse buttons its public source only taps.
    """

    def __init__(self, calls: SiphonCalls) -> None:
        self._calls = calls
        self._down: set[str] = set()

    def check(self, key: str) -> None:
        """Raise `GameError` if Siphon has no such key."""
        if to_siphon(key) not in SIPHON_KEYS:
            raise GameError(str(UnknownNameError("Siphon key", to_siphon(key), sorted(SIPHON_KEYS))))

    def press(self, key: str) -> None:
        """Send a key down; raises `LinkError` if the server cannot."""
        self._down.add(key)
        self._toggle(key, True)

    def release(self, key: str) -> None:
        """Send a key up; raises `LinkError` if the server cannot."""
        self._toggle(key, False)
        self._down.discard(key)

    def tap(self, keys: Iterable[str], hold_s: float, delay_s: float = 0.0) -> None:
        """Press keys in turn `delay_s` apart, hold them, release them in turn: one call, timed by the server."""
        names = [to_siphon(key) for key in keys]
        lasts_s = hold_s + 2 * delay_s * max(len(names) - 1, 0)
        hold_ms, delay_ms = round(hold_s * 1000), round(delay_s * 1000)
        self._calls.call("InputKeyTap", _SLACK_S + lasts_s, keys=names, hold_ms=hold_ms, delay_ms=delay_ms)

    def move_mouse(self, right: int, down: int, steps: int = 1) -> None:
        """Move the mouse by pixels, in so many steps of 10 ms."""
        self._calls.call("MoveMouse", _SLACK_S + steps * 0.02, delta_x=right, delta_y=down, steps=steps)

    def close(self) -> None:
        """Release what is held; a second call does nothing."""
        for key in sorted(self._down):
            self.release(key)

    def _toggle(self, key: str, down: bool) -> None:
        self._calls.call("InputKeyToggle", key=to_siphon(key), toggle=down)
