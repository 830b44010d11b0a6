"""A boss's arena in a real-time game: bounds, floor, way in. A TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import hypot
from typing import Annotated

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.data_files import load_data, shipped_names
from soulsgraph_envs.scenario import Arena, Scenario, Transition
from soulsgraph_envs.schema import Between

Point = tuple[float, float, float]
_COORDINATE = Between(-1e6, 1e6)
#: A disc's edge is where the simulator's fighters stop, not where the game's ground does.
_MARGIN_M = 5.0


@dataclass(frozen=True)
class Entrance:
    """The fog gate: where to stand and look when interacting with it, and where the player comes out."""

    outside_m: Annotated[Point, _COORDINATE]
    outside_angle_rad: Annotated[float, Between(-3.2, 3.2)]
    camera: Annotated[Point, Between(-1.0, 1.0)]
    inside_m: Annotated[Point, _COORDINATE]


@dataclass(frozen=True)
class LiveArena:
    """One boss's arena in the game's coordinates, z up; `reload` is written before the world is reloaded."""

    name: str
    #: Beginnings of the names of the boss data that fight here.
    bosses: tuple[str, ...]
    #: The boss's character name in the game.
    character: str
    low_m: Annotated[Point, _COORDINATE]
    high_m: Annotated[Point, _COORDINATE]
    floor_m: tuple[Point, ...] = ()
    entrance: Entrance | None = None
    #: The scenario of the boss's whole fight, which knows its change of phase; empty if it has none.
    whole_fight: str = ""
    reload: dict[str, float] = field(default_factory=dict)

    @cached_property
    def transition(self) -> Transition | None:
        """The boss's change of phase."""
        return load_scenario(self.whole_fight).transition if self.whole_fight else None

    def holds(self, x: float, y: float, z: float) -> bool:
        """Return whether a place lies within the arena's bounds."""
        return all(low <= value <= high for low, value, high in zip(self.low_m, (x, y, z), self.high_m, strict=True))

    def floor(self, x: float, y: float) -> float:
        """Return the height of the known floor point nearest to a place, metres."""
        return min(self.floor_m, key=lambda point: hypot(point[0] - x, point[1] - y))[2]


def arena_of(scenario: Scenario, boss: str) -> LiveArena:
    """Return the arena in which a boss, by the name in its data, is fought.

    It is the scenario's own disc if the boss has no file, or if the file's arena is another place.
    """
    (x, y), z = scenario.arena.centre_m, scenario.arena.height_m
    for name in shipped_names("arena"):
        arena = load_data("arena", LiveArena, name)
        if boss.startswith(arena.bosses) and arena.holds(x, y, z):
            return arena
    return _disc(scenario.arena, boss)


def _disc(arena: Arena, boss: str) -> LiveArena:
    (x, y), z, reach = arena.centre_m, arena.height_m, arena.radius_m + _MARGIN_M
    return LiveArena(
        name=f"the disc of {boss}",
        bosses=(boss,),
        character="",
        low_m=(x - reach, y - reach, z - _MARGIN_M),
        high_m=(x + reach, y + reach, z + _MARGIN_M),
        floor_m=((x, y, z),),
    )
