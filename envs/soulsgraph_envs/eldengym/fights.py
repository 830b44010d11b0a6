"""How a fight begins in the real game, as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.eldengym.keys import Tap
from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.schema import Between, Where, read_table, read_toml

_FILE = Path(__file__).parents[1] / "data" / "eldengym" / "fights.toml"
_SECONDS = Between(0.0, 60.0)


@dataclass(frozen=True)
class FightStart:
    """The fog wall, in global coordinates, and what to press before and behind it."""

    fog_wall_m: Annotated[tuple[float, float, float], Between(-1e6, 1e6)]
    mouse_pixels: Annotated[int, Between(-10_000, 10_000)]
    settle_s: Annotated[float, _SECONDS]
    enter: Tap
    #: A player who passed the wall is so far from it at least.
    passed_m: Annotated[float, Between(0.0, 100.0)]
    #: Player and boss who are nearer than this are fighting; a player farther from the wall is somewhere else.
    fight_m: Annotated[float, Between(0.0, 1000.0)]
    inside_s: Annotated[float, _SECONDS]
    lock_on: Tap


def fight_name(scenario: str) -> str:
    """Return a scenario's own name, "margit" for Margit and version 0.6.0's Margit-v0."""
    return scenario.lower().removesuffix("-v0")


def load_fight(scenario: str) -> FightStart:
    """Load how a scenario's fight begins.

    Raises:
        UnknownNameError: if that is not known.
        DataError: for a missing or mistyped value.
    """
    values, where, name = read_toml(_FILE), Where(_FILE), fight_name(scenario)
    if name not in values:
        raise UnknownNameError("fight of Elden Ring", scenario, values)
    return read_table(FightStart, values[name], where.at(name))
