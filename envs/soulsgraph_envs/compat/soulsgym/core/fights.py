"""A fight as data, under SoulsGym's names: the player's and a boss's animations, the arena, its places, the reward."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from math import dist
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.compat.soulsgym.core.game_state import GameState
from soulsgraph_envs.core.config import Between, Where, load
from soulsgraph_envs.core.state import Control

#: The number of an animation that is not in the table.
UNKNOWN = -1

DATA = Path(__file__).parents[3] / "data" / "soulsgym"

Position = Annotated[tuple[float, float, float], Between(-1e6, 1e6)]
Pose = tuple[float, float, float, float]
Times = Annotated[tuple[float, float, float], Between(0.0, 60.0)]


#: Where SoulsGym's boxes end: pi, rounded up.
_HALF_TURN_RAD = 3.1416


@dataclass(frozen=True)
class PlayerTable:
    """The player's animations in the order of their numbers.

    Each keeps the player for some seconds from attacking, rolling and moving; one that is not in the table does not.
    """

    animations: dict[str, Times]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Map each name to its number."""
        return {name: number for number, name in enumerate(self.animations)}

    @cached_property
    def looped(self) -> frozenset[str]:
        """Return the animations that do not bind the player: they play in a loop."""
        return frozenset(name for name, (_, _, move_s) in self.animations.items() if move_s == 0.0)


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
class AnimationKinds:
    """A boss's animations by SoulsGym's kinds, in the order of their numbers."""

    attacks: tuple[str, ...]
    movement: tuple[str, ...]
    misc: tuple[str, ...]


_END = 0.1
_APPROACH = 0.01
#: Nothing is gained by coming closer to the middle of the arena than this.
_NEAR_M = 4.0


@dataclass(frozen=True)
class BossFight:
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
    animations: AnimationKinds
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
        return {name: number for number, name in enumerate(chain(*vars(self.animations).values()))}

    def in_game(self, animation: str) -> str:
        """Return the game's name of a boss's animation, which may differ from the simulator's."""
        return self.simulated.get(animation, animation)

    def reward(self, before: GameState, after: GameState) -> float:
        """Reward HP taken and kept, victory and, while the fight lasts, standing near the centre if there is one.

        HP counts as a share of its maximum, about -1 to 1 over a fight; the end is worth 0.1 more, or less
        (source: SoulsGym's Iudex environments).
        """
        taken = (before.boss_hp - after.boss_hp) / after.boss_max_hp
        kept = (after.player_hp - before.player_hp) / after.player_max_hp
        if after.boss_hp <= 0:
            return taken + kept + _END
        if after.player_hp <= 0:
            return taken + kept - _END
        if self.reward_centre_m is None:
            return taken + kept
        was_m, is_m = (dist(state.player_pose[:2], self.reward_centre_m) for state in (before, after))
        return taken + kept + (_APPROACH * (was_m - is_m) if is_m > _NEAR_M else 0.0)


@cache
def player_table() -> PlayerTable:
    """Load the player's animations (source: SoulsGym's measured table)."""
    return load(PlayerTable, Where(DATA / "player.toml"))


@cache
def load_fight(name: str) -> BossFight:
    """Load a fight of `data/soulsgym/fights`.

    Raises:
        DataError: for a missing, misspelt or mistyped value.
    """
    return load(BossFight, Where(DATA / "fights" / f"{name}.toml"))


@dataclass(frozen=True)
class Static:
    """The file `data/soulsgym/static.toml`; what its tables mean stands there."""

    presses: dict[str, Control]
    actions: tuple[str, ...]
    critical_player_animations: dict[str, tuple[float, ...]]
    player_stats: dict[str, tuple[int, ...]]
    bases: dict[str, str]
    offsets: dict[str, str]
    boss_offsets: dict[str, str]
    bonfires: dict[str, int]


STATIC = load(Static, Where(DATA / "static.toml"))
