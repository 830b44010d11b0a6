"""Translate a reading of a game into the 25 raw values, its animations into the ids that skills observe."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.config import Where, load
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.fighters import Animation, BossData, PlayerData
from soulsgraph_envs.core.scenario import Scenario, Transition, load_boss, load_player
from soulsgraph_envs.core.state import RAW_SIZE, Raw, wrap_angle
from soulsgraph_envs.drivers.realtime.link import Reading

_LOG = logging.getLogger(__name__)
_ALIASES = Path(__file__).parents[2] / "data" / "animation_aliases.toml"
#: A boss's animation whose name holds one of these is what the attack register says (SoulsGym's rule):
#: a blow that lands overwrites the name for a while, but not the register.
_ATTACK_MARKS = ("Attack", "SABlend", "Part")


@dataclass(frozen=True)
class _Aliases:
    """By character: the game's names, and the keys of the data's animations that they stand for."""

    player: dict[str, str]
    boss: dict[str, str]


class AnimationTable:
    """One character's animations in one phase; `unknown` counts what the data do not name."""

    def __init__(self, who: str, animations: Mapping[str, Animation], aliases: Mapping[str, str]) -> None:
        self.unknown: Counter[str] = Counter()
        self._who, self._animations, self._idle = who, animations, animations["idle"]
        self._ids = {name: animations[role].id for name, role in aliases.items() if role in animations}
        self._ids |= {animation.name: animation.id for animation in animations.values()}
        self._numbers = {animation.raw_id: animation.id for animation in animations.values() if animation.raw_id >= 0}

    def translate(self, reading: Reading) -> int:
        """Return the skills' id of the animation in a reading; idle, counted and reported once, for an unknown one."""
        key = self.key(reading)
        if (found := self._find(key)) is not None:
            return found
        self.unknown[str(key)] += 1
        if self.unknown[str(key)] == 1:
            _LOG.warning("the %s's animation %s is not in the data: the skills see it as idle", self._who, key)
        return self._idle.id

    def key(self, reading: Reading) -> str | int:
        """Return the name of the animation in a reading, or the game's number if it has no name."""
        name = reading.get(f"{self._who}_animation")
        if name is None:
            return int(reading.get(f"{self._who}_animation_id", -1))
        if "boss_attack_id" in reading and self._who == "boss" and any(mark in str(name) for mark in _ATTACK_MARKS):
            return self._attack(reading)
        return str(name)

    def recognises(self, reading: Reading) -> bool:
        """Return whether animations can be identified in readings like this one."""
        return isinstance(self.key(reading), str) or bool(self._numbers)

    def among(self, reading: Reading, roles: Collection[str]) -> bool:
        """Return whether a reading shows one of the animations of these keys of the data; False for an unknown one."""
        return self._find(self.key(reading)) in {self._animations[role].id for role in roles}

    def _find(self, key: str | int) -> int | None:
        return self._ids.get(key) if isinstance(key, str) else self._numbers.get(key)

    def _attack(self, reading: Reading) -> str:
        for register in ("boss_attack_id", "boss_attack_id_fallback"):
            number = int(reading.get(register, -1))
            if number >= 0:
                return f"Attack{number}"
        return self._idle.name


def player_table(player: PlayerData) -> AnimationTable:
    """Make the table of a player's data."""
    return AnimationTable("player", player.animations.known(), _aliases().player)


def boss_table(boss: BossData, transition: Transition | None = None) -> AnimationTable:
    """Make the table of one phase of a boss, with the animation that ends it if there is one."""
    animations = boss.animations.known()
    animations |= {move.title: Animation(move.id, move.name, move.raw_id) for move in boss.moves}
    if transition:
        animations["transition"] = transition.animation
    return AnimationTable("boss", animations, _aliases().boss)


class Tables(NamedTuple):
    """The animations of a scenario: the player's, its drink's id, and the boss's phase by phase."""

    player: AnimationTable
    drinking: int
    phases: tuple[AnimationTable, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Tables:
        """Make the tables of a scenario's data."""
        player = load_player(scenario.player)
        bosses = tuple(boss_table(load_boss(phase.boss), phase.transition) for phase in scenario.phases())
        return cls(player_table(player), player.animations.estus.id, bosses)

    def unknown(self) -> Counter[str]:
        """Count what the data do not name, by the game's name."""
        return sum((table.unknown for table in self.phases), self.player.unknown.copy())


def shows(reading: Reading, who: str, animation: Animation) -> bool:
    """Return whether a reading shows a character in an animation, by its name or else by its number."""
    name = reading.get(f"{who}_animation")
    return name == animation.name if name is not None else reading[f"{who}_animation_id"] == animation.raw_id


@cache
def _aliases() -> _Aliases:
    return load(_Aliases, Where(_ALIASES))


Row = npt.NDArray[np.float64]

#: Fields that are raw values as they stand, the angles wrapped.
_PLAIN = {
    **{Raw[f"{who}_{axis}"]: f"{who}_{axis}".lower() for who in ("PLAYER", "BOSS", "CAMERA") for axis in "XYZ"},
    **{Raw[name]: name.lower() for name in ("PLAYER_ANGLE", "BOSS_ANGLE", "PLAYER_HP", "PLAYER_HP_MAX", "LOCKED")},
    **{Raw[name]: f"player_{name.lower()}" for name in ("STAMINA", "STAMINA_MAX")},
    **{Raw[name]: name.lower() for name in ("BOSS_HP", "BOSS_HP_MAX")},
}
_CLOCKS = {
    Raw[f"{who}_ANIMATION_{what}_S"]: f"{who}_animation_{what}_s".lower()
    for who in ("PLAYER", "BOSS")
    for what in ("TIME", "LENGTH")
}
#: Numbers without which a raw value cannot be given.
RAW_FIELDS = frozenset((_PLAIN | _CLOCKS).values())
_ANIMATIONS = {Raw.PLAYER_ANIMATION: "player", Raw.BOSS_ANIMATION: "boss"}


def supplied_raws(fields: frozenset[str]) -> frozenset[str]:
    """Return the raw values that can be made from a map's fields; flasks can be counted by the drinks."""
    named = {raw for raw, who in _ANIMATIONS.items() if {f"{who}_animation", f"{who}_animation_id"} & fields}
    named |= {raw for raw, field in (_PLAIN | _CLOCKS).items() if field in fields}
    if "flasks" in fields or "player_animation" in fields:
        named.add(Raw.FLASKS)
    return frozenset(raw.name for raw in named)


class Flasks:
    """Count an episode's flasks: those beyond the scenario's number are not shown.

    If the game's number cannot be read, drinks are counted by the animation's id `drinking`.
    """

    def __init__(self, count: int, drinking: int, reading: Reading) -> None:
        self._left, self._drinking, self._drinks = count, drinking, False
        self._readable, self._surplus = isfinite(float(reading.get("flasks", nan))), 0
        if self._readable:
            self._surplus = int(reading["flasks"]) - count
        if self._surplus < 0:
            raise GameError(
                f"expected {count} flasks at the start, found {reading['flasks']:g}, and the map cannot write them: "
                "rest at a bonfire, or take a scenario with fewer."
            )

    def left(self, reading: Reading, animation: int) -> int:
        """Return the flasks left after a tick that showed the player in an animation."""
        if self._readable:
            return max(int(reading["flasks"]) - self._surplus, 0)
        if animation == self._drinking and not self._drinks:
            self._left = max(self._left - 1, 0)
        self._drinks = animation == self._drinking
        return self._left


def translate(reading: Reading, player: AnimationTable, boss: AnimationTable, flasks: Flasks) -> Row:
    """Return the raw values (25,) of a reading, 0 for what is not supplied."""
    row = np.zeros(RAW_SIZE)
    for raw, field in _PLAIN.items():
        if field in reading:
            row[raw] = reading[field]
    for angle in (Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE):
        row[angle] = wrap_angle(float(row[angle]))
    for level in (Raw.PLAYER_HP, Raw.BOSS_HP):
        # Death is disabled: a fighter with a single point left counts as dead.
        row[level] = row[level] if row[level] > 1.0 else 0.0
    for animation, table in ((Raw.PLAYER_ANIMATION, player), (Raw.BOSS_ANIMATION, boss)):
        _fill_animation(row, animation, table, reading)
    row[Raw.FLASKS] = flasks.left(reading, int(row[Raw.PLAYER_ANIMATION]))
    return row


def _fill_animation(row: Row, at: Raw, table: AnimationTable, reading: Reading) -> None:
    who = _ANIMATIONS[at]
    if f"{who}_animation" in reading or f"{who}_animation_id" in reading:
        row[at] = table.translate(reading)
    length_s = float(reading.get(f"{who}_animation_length_s", 0.0))
    time_s = float(reading.get(f"{who}_animation_time_s", 0.0))
    row[at + 1], row[at + 2] = min(max(time_s, 0.0), length_s), length_s
