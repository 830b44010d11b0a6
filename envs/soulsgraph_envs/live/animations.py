"""Translate a game's animations, by name or by number, into the ids the skills see.

The ids come from the same player and boss data as the simulator's. A boss's attack numbers mean other
moves in another phase, so each phase has a table of its own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.catalogue import load_boss, load_player
from soulsgraph_envs.encounter import Animation, BossData, PlayerData
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.scenario import Scenario, Transition
from soulsgraph_envs.schema import Where, load

_LOG = logging.getLogger(__name__)
_ALIASES = Path(__file__).parents[1] / "data" / "animation_aliases.toml"
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
