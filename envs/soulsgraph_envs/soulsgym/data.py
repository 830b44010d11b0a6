"""SoulsGym's data of the fights: numbered animations, their times, arenas and poses."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.core.config import Between, Where, load
from soulsgraph_envs.core.fighters import Status
from soulsgraph_envs.core.scenario import load_boss

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


#: Where SoulsGym's boxes end: pi, rounded up.
_HALF_TURN_RAD = 3.1416

#: For an animation that is not in the table: it does not bind the player.
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
        """Return the animations that do not bind the player: they play in a loop."""
        return frozenset(binding.name for binding in self.animations if binding.move_s == 0.0)

    def binding(self, name: str) -> Binding:
        """Return the times of an animation; none for an unknown one."""
        number = self.numbers.get(name, UNKNOWN)
        return _FREE if number == UNKNOWN else self.animations[number]


@dataclass(frozen=True)
class Coordinates:
    """The places of a fight under SoulsGym's names: (x, y, z, angle), z up; a bonfire's angle may be left out."""

    fog_wall: Pose
    post_fog_wall: Pose
    bonfire: tuple[float, ...]
    boss_init_pose: Pose
    player_init_pose: Pose
    player_init_poses_random: tuple[Pose, ...] = ()
    center: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fight:
    """A boss: where it is fought, from which places, and its numbered animations."""

    name: str
    #: The bonfire that the game is reloaded at, and where the camera looks to pass the fog wall.
    bonfire: str
    camera: Annotated[tuple[float, float, float], Between(-1.0, 1.0)]
    looped: tuple[str, ...]
    #: The box of places within which the fight can be.
    arena_low_m: Position
    arena_high_m: Position
    coordinates: Coordinates
    #: By SoulsGym's kinds, in the order of their numbers.
    animations: dict[str, tuple[str, ...]]
    #: What the reward's term for the place is measured from; without one there is no such term.
    reward_centre_m: tuple[float, float] | None = None
    #: The game's names for animations that the simulator calls otherwise.
    simulated: dict[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> tuple[list[float], list[float]]:
        """Return the lowest and the highest pose (x, y, z, angle) of the arena."""
        return [*self.arena_low_m, -_HALF_TURN_RAD], [*self.arena_high_m, _HALF_TURN_RAD]

    @cached_property
    def boss_numbers(self) -> dict[str, int]:
        """Map each of the boss's animations to its number."""
        return {name: number for number, name in enumerate(chain(*self.animations.values()))}

    def in_game(self, animation: str) -> str:
        """Return the game's name of a boss's animation, which may differ from the simulator's."""
        return self.simulated.get(animation, animation)


@cache
def player_table() -> PlayerTable:
    """Load the player's animations (source: SoulsGym's measured table)."""
    return load(PlayerTable, Where(DATA / "player.toml"))


@cache
def load_fight(name: str) -> Fight:
    """Load a fight of `data/soulsgym/fights`.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
    """
    return load(Fight, Where(DATA / "fights" / f"{name}.toml"))


@cache
def frost_of(boss: str) -> Status | None:
    """Return the frost that a boss's blows build up, None if they build up none."""
    status = load_boss(boss).status
    return status if status.name == "frost" else None
