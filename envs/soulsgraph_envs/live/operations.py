"""The only module that writes to a real game: named operations, listed with the fields that each writes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple, Protocol

from soulsgraph_envs.errors import GameError

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
