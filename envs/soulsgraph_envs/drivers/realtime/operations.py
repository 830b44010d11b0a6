"""The only place that writes to a real game, operation by operation; and whether keys still reach it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple, Protocol

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, GameError
from soulsgraph_envs.drivers.keyboard.device import Bindings, KeyDevice
from soulsgraph_envs.drivers.keyboard.guarded_device import HeldKeys
from soulsgraph_envs.drivers.realtime.animations import AnimationTable
from soulsgraph_envs.drivers.realtime.cycle_timer import Clock
from soulsgraph_envs.drivers.realtime.link import Reading

_LOG = logging.getLogger(__name__)


class Operation(NamedTuple):
    """An operation: its purpose, the fields it writes, and whether a map that cannot write them may omit it."""

    purpose: str
    fields: tuple[str, ...]
    optional: bool = False


class Writable(Protocol):
    """A game whose fields are written by name, such as a `Link`."""

    writes: frozenset[str]

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`."""
        ...


def _place(who: str) -> tuple[str, ...]:
    return (*(f"{who}_{axis}" for axis in "xyz"), f"{who}_angle")


#: Every write of the drivers. Flags are for everyone: the player and the boss.
OPERATIONS: Mapping[str, Operation] = {
    "prevent_death": Operation("nobody dies, so that the boss stays loaded", ("no_death",), optional=True),
    "allow_death": Operation("the game's own rules again", ("no_death",), optional=True),
    "hold": Operation("nobody attacks, moves or is hurt", ("no_attack", "no_move", "no_damage"), optional=True),
    "let_go": Operation("attacks, movement and damage again", ("no_attack", "no_move", "no_damage"), optional=True),
    "place_player": Operation("teleport the player", _place("player")),
    "place_boss": Operation("teleport the boss", _place("boss")),
    "set_gravity": Operation("no fall while teleporting", ("player_no_gravity",), optional=True),
    "restore_player": Operation("full HP", ("player_hp",)),
    "restore_stamina": Operation("full stamina", ("player_stamina",), optional=True),
    "set_boss_hp": Operation("HP of the episode's start, of the boss's floor, or below its phase", ("boss_hp",)),
    "set_flasks": Operation("the scenario's number of flasks", ("flasks",), optional=True),
    "set_speed": Operation("speed of the game's clock", ("game_speed", "game_speed_on"), optional=True),
    "mark_arena": Operation(
        "the boss met but not beaten, the arena's bonfire as the place to wake",
        ("boss_flags", "ceremony", "gate_open", "last_bonfire"),
        optional=True,
    ),
    "kill_player": Operation("let the world load anew", ("no_death", "no_damage", "player_hp"), optional=True),
}

#: Every write of EldenGym's environments into Elden Ring, by the names of its attributes.
ELDENGYM_OPERATIONS: Mapping[str, Operation] = {
    "fill_hp": Operation("both fighters' full HP when a fight begins", ("HeroHp", "NpcHp")),
    "set_speed": Operation("speed of the game's clock", ("gameSpeedFlag", "gameSpeedVal"), optional=True),
    "set_attribute": Operation(
        "what the environment's client sets: the way to the fog wall, wrappers, the user's own code",
        (
            *("HeroHp", "HeroFp", "HeroSp", "NpcHp", "NoGravity", "gameSpeedFlag", "gameSpeedVal"),
            *(f"{who}LocalPos{axis}" for who in ("Hero", "Npc") for axis in "XYZ"),
        ),
        optional=True,
    ),
}


class Operations:
    """Carry out operations on a link, or with `dry_run` only log what they would write."""

    def __init__(self, link: Writable, dry_run: bool = False, operations: Mapping[str, Operation] = OPERATIONS) -> None:
        self._link, self.dry_run, self._operations = link, dry_run, operations

    def missing(self) -> dict[str, tuple[str, ...]]:
        """Return the fields that the map cannot write, by operation."""
        found = {name: tuple(f for f in op.fields if not self._writes(f)) for name, op in self._operations.items()}
        return {name: fields for name, fields in found.items() if fields}

    def check(self) -> None:
        """Refuse a map that cannot write a required field; log the missing optional ones.

        Raises:
            GameError: naming what must be written and cannot.
        """
        lacking = {name: fields for name, fields in self.missing().items() if not self._operations[name].optional}
        if lacking:
            names = ", ".join(sorted({field for fields in lacking.values() for field in fields}))
            raise GameError(
                f"expected a map that writes {names}, found one that does not: episodes cannot be begun with it; "
                "take another map."
            )
        for name, fields in self.missing().items():
            _LOG.info("operation %s does without %s", name, ", ".join(fields))

    def can(self, name: str) -> bool:
        """Return whether the map can write all fields of an operation."""
        return all(self._writes(field) for field in self._operations[name].fields)

    def run(self, name: str, **values: float) -> None:
        """Carry out one operation; an optional one leaves out the fields that the map lacks.

        Raises:
            GameError: for a field that is not the operation's, or a value that is no number.
            LinkError: if the game cannot be reached.
        """
        operation = self._operations[name]
        stray = sorted(set(values) - set(operation.fields))
        if stray:
            raise GameError(f"operation {name}: expected fields of {', '.join(operation.fields)}; found {stray}.")
        writes = {field: value for field, value in values.items() if self._writes(field)}
        if not all(isfinite(value) for value in writes.values()):
            raise GameError(f"operation {name}: expected numbers, found {writes}.")
        if self.dry_run:
            _LOG.warning("dry run: %s (%s) would write %s", name, operation.purpose, writes)
        elif writes:
            self._link.write(writes)

    def _writes(self, field: str) -> bool:
        return field in self._link.writes


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
