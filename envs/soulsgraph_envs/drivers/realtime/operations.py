"""Play a running game: the only place that writes to it; its keys, and whether they still reach it; waiting for it."""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple, Protocol

from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, GameError
from soulsgraph_envs.drivers.keyboard.bindings import Bindings
from soulsgraph_envs.drivers.keyboard.device import KeyDevice
from soulsgraph_envs.drivers.keyboard.guarded_device import HeldKeys
from soulsgraph_envs.drivers.realtime.cycle_timer import Clock
from soulsgraph_envs.drivers.realtime.link import GameSettings, Link, LinkError, Reading
from soulsgraph_envs.drivers.realtime.readings import AnimationTable, same_moment

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
    """An operation: its purpose, the fields it writes, and whether a map that cannot write them may omit it."""

    purpose: str
    fields: tuple[str, ...]
    optional: bool = False


class Writable(Protocol):
    """A game whose fields are written by name, such as a `Link`."""

    writes: frozenset[str]

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`."""


_FILE = Where(Path(__file__).parents[2] / "data" / "operations.toml")
_ALL: dict[str, dict[str, Operation]] = read_value(dict[str, dict[str, Operation]], read_file(_FILE), _FILE)
#: Every write of the drivers, and every one of EldenGym's environments into Elden Ring.
OPERATIONS, ELDENGYM_OPERATIONS = _ALL["drivers"], _ALL["eldengym"]


class Operations:
    """Carry out operations on a link, or with `dry_run` only log what they would write."""

    def __init__(self, link: Writable, dry_run: bool = False, operations: Mapping[str, Operation] = OPERATIONS) -> None:
        self._link, self.dry_run, self._operations = link, dry_run, operations

    def missing(self) -> dict[str, tuple[str, ...]]:
        """Return the fields that the map cannot write, by operation."""
        writes, operations = self._link.writes, self._operations
        found = {name: tuple(field for field in op.fields if field not in writes) for name, op in operations.items()}
        return {name: fields for name, fields in found.items() if fields}

    def check(self) -> None:
        """Refuse a map that cannot write a required field; log the missing optional ones.

        Raises:
            GameError: naming what must be written and cannot.
        """
        missing = self.missing()
        lacking = {field for name, fields in missing.items() if not self._operations[name].optional for field in fields}
        if lacking:
            raise GameError(
                f"expected a map that writes {', '.join(sorted(lacking))}, found one that does not: episodes cannot be "
                "begun with it; take another map."
            )
        for name, fields in missing.items():
            _LOG.info("operation %s does without %s", name, ", ".join(fields))

    def can(self, name: str) -> bool:
        """Return whether the map can write all fields of an operation."""
        return name not in self.missing()

    def run(self, name: str, **values: float) -> None:
        """Carry out one operation; an optional one leaves out the fields that the map lacks.

        Raises:
            GameError: for a field that is not the operation's, or a value that is no number.
            LinkError: if the game cannot be reached.
        """
        operation = self._operations[name]
        if stray := sorted(set(values) - set(operation.fields)):
            raise GameError(f"operation {name}: expected fields of {', '.join(operation.fields)}; found {stray}.")
        writes = {field: value for field, value in values.items() if field in self._link.writes}
        if not all(map(isfinite, writes.values())):
            raise GameError(f"operation {name}: expected numbers, found {writes}.")
        if self.dry_run:
            _LOG.warning("dry run: %s (%s) would write %s", name, operation.purpose, writes)
        elif writes:
            self._link.write(writes)


class Pad:
    """Hold and tap controls on a key device by its bindings; taps last equally long in game time at any speed."""

    def __init__(self, bindings: Bindings, device: KeyDevice, clock: Clock, speed: float) -> None:
        self.bindings = bindings
        self._keys = HeldKeys(device, clock.sleep)
        self._tap_s = bindings.tap_s / speed

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


_STEPS = ((Control.FORWARD, Control.BACK), (Control.LEFT, Control.RIGHT))
_TURNS = ((Control.CAMERA_LEFT, Control.CAMERA_RIGHT),)
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
        elif not any(sent & (one | other) for one, other in _STEPS):
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


def _net(sent: Control, pairs: tuple[tuple[Control, Control], ...]) -> bool:
    """Return whether a direction is left when opposite ones cancel."""
    return any((one in sent) != (other in sent) for one, other in pairs)


#: The pipe of SoulsGym's speed library, which must be in the game already: one little-endian float a message.
#: Not verified in a running game.
_PIPE = r"\\.\pipe\SoulsGymSpeedHackPipe"
#: A shorter measurement is worth nothing; a rate further off is another speed.
_SHORTEST_S, _TOLERANCE = 0.4, 0.3
_POLL_S = 0.02
#: A game whose values are unchanged for this long, in the machine's time, hangs.
_HANGING_S = 2.0


class Moment(NamedTuple):
    """The time of a reading by this machine's clock and by the game's (NaN if it cannot be read)."""

    here_s: float
    game_s: float


class NotReachedError(GameError):
    """The game did not reach an expected state in time."""


class UnansweredError(NotReachedError):
    """The game did not answer to a key."""


@dataclass(frozen=True)
class Session:
    """The state that the parts of a driver share. Timeouts count game time: at speed 3 they elapse 3 times faster."""

    link: Link
    settings: GameSettings
    clock: Clock
    operations: Operations
    pad: Pad

    def wait(self, game_s: float) -> None:
        """Wait for this much game time."""
        self.clock.sleep(game_s / self.settings.speed)

    def until(
        self,
        what: str,
        met: Callable[[Reading], bool],
        limit_s: float,
        act: Callable[[Reading], None] = lambda _: None,
    ) -> Reading:
        """Return the first reading that meets a condition; call `act` on each one that does not.

        Raises:
            NotReachedError: after `limit_s`, or earlier for a game that hangs, naming the expected state.
            LinkError: if the game cannot be reached.
        """
        changed_s = self.clock.now()
        end_s, last = changed_s + limit_s / self.settings.speed, self.link.read()
        reading = last
        while not met(reading):
            now_s = self.clock.now()
            if not same_moment(reading, last):
                last, changed_s = reading, now_s
            if now_s > end_s or now_s - changed_s > _HANGING_S:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")
            act(reading)
            self.wait(_POLL_S)
            reading = self.link.read()
        return reading

    def until_reachable(self, what: str, met: Callable[[Reading], bool], limit_s: float) -> None:
        """Wait as `until` does, but tolerate a game that cannot be reached or stands still, as at a loading screen."""
        end_s = self.clock.now() + limit_s / self.settings.speed
        while True:
            trouble = "it did not come"
            try:
                if met(self.link.read()):
                    return
            except LinkError as error:
                trouble = str(error)
            if self.clock.now() > end_s:
                raise NotReachedError(f"expected {what} within {limit_s:g} s, found: {trouble}")
            self.wait(_POLL_S)

    def set_speed(self, speed: float) -> None:
        """Set the speed of the game's clock, 0 to stop it: by memory, else through SoulsGym's pipe if there is one."""
        if "game_speed" in self.link.writes:
            self.operations.run("set_speed", game_speed=speed, game_speed_on=1.0)
        elif sys.platform == "win32" and not self.operations.dry_run:
            try:
                with open(_PIPE, "wb", buffering=0) as pipe:
                    pipe.write(struct.pack("<f", speed))
            except OSError:
                # No library, no pipe: `check_speed` sees what the clock really does.
                return

    def moment(self, reading: Reading) -> Moment:
        """Return the time of a reading just made."""
        return Moment(self.clock.now(), float(reading.get("play_time_s", nan)))

    def check_speed(self, before: Moment, after: Moment) -> None:
        """Refuse a game whose clock runs at another speed than in the settings, if it can be measured.

        Raises:
            GameError: with the speed found.
            NotReachedError: if the speed differed only for a moment, as on a busy machine.
        """
        speed = self.settings.speed
        if not _is_another(speed, before, after):
            return
        self.clock.sleep(_SHORTEST_S)
        again = self.moment(self.link.read())
        if not _is_another(speed, after, again):
            raise NotReachedError(f"expected the game's clock at {speed:g} times this machine's, found it faltering.")
        found = (again.game_s - after.game_s) / (again.here_s - after.here_s)
        raise GameError(
            f"speed: expected the game's clock at {speed:g} times this machine's, found {found:.2f} times; correct "
            "speed in the settings, or the game's."
        )


def _is_another(speed: float, before: Moment, after: Moment) -> bool:
    """Return whether the game's clock ran at another speed between two moments; never for too short a time."""
    here_s = after.here_s - before.here_s
    return here_s >= _SHORTEST_S / speed and abs((after.game_s - before.game_s) / here_s / speed - 1.0) > _TOLERANCE
