"""Detect from readings whether keys still reach the game: a window that stalls, focus or input that is lost."""

from __future__ import annotations

from soulsgraph_envs.controls import Control
from soulsgraph_envs.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError
from soulsgraph_envs.keys.bindings import Bindings
from soulsgraph_envs.keys.device import KeyDevice
from soulsgraph_envs.keys.guarded_device import HeldKeys
from soulsgraph_envs.live.animations import AnimationTable
from soulsgraph_envs.live.cycle_timer import Clock
from soulsgraph_envs.live.fields import Reading

_STEPS = (Control.FORWARD, Control.BACK, Control.LEFT, Control.RIGHT)
_TURNS = (Control.CAMERA_LEFT, Control.CAMERA_RIGHT)
_TAPS = Control.ROLL | Control.LIGHT_ATTACK | Control.USE_ITEM
_FREE = ("idle", "run")
#: So many ticks without effect mean lost keys; one tap without is enough, but it has some ticks to take effect.
_MOST, _TAP_WEIGHT, _TAP_TICKS = 8, 8, 4


class KeyEffects:
    """Count, by kind, the controls sent without effect since the last one with an effect."""

    def __init__(self, player: AnimationTable, first: Reading) -> None:
        self._player, self._last = player, first
        self._ineffective = {"steps": 0, "stops": 0, "taps": 0, "camera": 0}
        #: By kind, the tick before the first without effect.
        self._before: dict[str, int] = {}
        self._tapped, self._tick, self._answered = 0, 0, 0

    @property
    def doubtful_ticks(self) -> int:
        """The largest number of latest ticks in which no key, or none of a kind, is known to have reached the game."""
        return min(self._tick - min([self._answered, *self._before.values()]), MOST_DOUBTFUL_TICKS)

    def judge(self, reading: Reading, sent: Control) -> None:
        """Compare a tick's controls with the reading at its end.

        Raises:
            EpisodeLostError: if keys no longer reach the game; in doubt is what came after the last effect.
        """
        self._tick += 1
        if _net(sent, _STEPS):
            self._count("steps", 1, not self._player.among(reading, ("idle",)))
        elif not any(step in sent for step in _STEPS):
            self._count("stops", 1, not self._player.among(reading, ("run",)))
        if _net(sent, _TURNS) and reading.get("locked") == 0 and "camera_x" in reading:
            turned = any(reading[f"camera_{axis}"] != self._last[f"camera_{axis}"] for axis in "xyz")
            self._count("camera", 1, turned)
        self._follow_tap(reading, sent)
        self._last = reading
        if max(self._ineffective.values()) >= _MOST:
            raise EpisodeLostError("keys have no effect any more: they do not reach the game", self.doubtful_ticks)

    def _follow_tap(self, reading: Reading, sent: Control) -> None:
        """Expect a tap of a free player with stamina to bind them within some ticks."""
        free = self._player.among(self._last, _FREE)
        if self._tapped == 0 and sent & _TAPS and free and float(self._last.get("player_stamina", 1)) > 0:
            self._tapped = _TAP_TICKS
        if self._tapped == 0:
            return
        self._tapped -= 1
        if not self._player.among(reading, _FREE):
            self._tapped = 0
            self._count("taps", 0, True)
        elif self._tapped == 0:
            self._count("taps", _TAP_WEIGHT, False, _TAP_TICKS)

    def _count(self, kind: str, weight: int, effective: bool, ticks: int = 1) -> None:
        """Note whether what was sent within the latest ticks had an effect."""
        self._ineffective[kind] = 0 if effective else self._ineffective[kind] + weight
        if not effective:
            self._before.setdefault(kind, self._tick - ticks)
            return
        self._before.pop(kind, None)
        # A player who stands or does not run may well do so without any key.
        if kind in ("taps", "camera"):
            self._answered = self._tick


def _net(sent: Control, pairs: tuple[Control, ...]) -> bool:
    """Return whether a direction is left when opposite ones, each pair in a row, cancel."""
    both = zip(pairs[::2], pairs[1::2], strict=True)
    return any((one in sent) != (other in sent) for one, other in both)


class Pad:
    """Hold and tap controls on a key device by its bindings; taps last equally long in game time at any speed."""

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
        """Release every key."""
        self._keys.release_all()
