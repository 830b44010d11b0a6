"""What the environments know beyond the game: numbered animations, their times, arenas and poses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.catalogue import load_boss
from soulsgraph_envs.encounter import Status
from soulsgraph_envs.schema import Between, Where, read_table, read_toml

#: The number of an animation that is not in the table.
UNKNOWN = -1

DATA = Path(__file__).parents[1] / "data" / "soulsgym"

Position = Annotated[tuple[float, float, float], Between(-1e6, 1e6)]
Pose = tuple[float, float, float, float]
_Seconds = Annotated[float, Between(0.0, 60.0)]


@dataclass(frozen=True)
class Binding:
    """An animation of the player and how long it keeps them from attacking, rolling and moving."""

    name: str
    attack_s: _Seconds
    roll_s: _Seconds
    move_s: _Seconds


#: Of an animation that is not in the table: it binds nobody.
_FREE = Binding("unknown", 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class PlayerTable:
    """The player's animations in the order of their numbers."""

    animations: tuple[Binding, ...]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Map each name to its number."""
        return {binding.name: number for number, binding in enumerate(self.animations)}

    @cached_property
    def looped(self) -> frozenset[str]:
        """Name those that bind nobody: they are played round and round."""
        return frozenset(binding.name for binding in self.animations if binding.move_s == 0.0)

    def binding(self, name: str) -> Binding:
        """Give the times of an animation; none for an unknown one."""
        number = self.numbers.get(name, UNKNOWN)
        return _FREE if number == UNKNOWN else self.animations[number]


@dataclass(frozen=True)
class Bounds:
    """The box of places within which a fight can be."""

    low_m: Position
    high_m: Position


@dataclass(frozen=True)
class Fight:
    """A boss: where it is fought, from which poses (x, y, z, angle), and its numbered animations."""

    name: str
    reward_centre_m: Annotated[tuple[float, float], Between(-1e6, 1e6)]
    boss_start: Pose
    player_starts: tuple[Pose, ...]
    boss_animations: tuple[str, ...]
    looped: tuple[str, ...]
    arena: Bounds

    @cached_property
    def boss_numbers(self) -> dict[str, int]:
        """Map each of the boss's animations to its number."""
        return {name: number for number, name in enumerate(self.boss_animations)}


@cache
def player_table() -> PlayerTable:
    """Load the player's animations (source: SoulsGym's measured table)."""
    path = DATA / "player.toml"
    return read_table(PlayerTable, read_toml(path), Where(path))


@cache
def load_fight(name: str) -> Fight:
    """Load a fight of `data/soulsgym/fights`.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
    """
    path = DATA / "fights" / f"{name}.toml"
    return read_table(Fight, read_toml(path), Where(path))


@cache
def frost_of(boss: str) -> Status | None:
    """Give the frost that a boss's blows build up, if they do."""
    status = load_boss(boss).status
    return status if status.name == "frost" else None
