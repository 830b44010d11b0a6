"""What the State's columns are to somebody who reads an observation: their units, and their ranges in a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi

import numpy as np

from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills.skill import Floats, ObservationMap

_SHARES = (Column.BOSS_PROGRESS, Column.PLAYER_PROGRESS, Column.STAMINA, Column.PLAYER_HP, Column.BOSS_HP)
_ANGLES = (Column.BOSS_ANGLE, Column.PLAYER_ANGLE)
_VECTORS = tuple(Column[f"{vector}_{axis}"] for vector in ("DIRECTION", "CAMERA") for axis in "XYZ")
_FIGHTERS = ("PLAYER", "BOSS")

#: The unit of each column: m, rad, "id" of an animation, "share" of a whole, "flag", "flasks", "" for unit vectors.
UNITS: Mapping[Column, str] = {
    **dict.fromkeys(_SHARES, "share"),
    **dict.fromkeys((*_ANGLES, Column.CAMERA_TARGET_ANGLE), "rad"),
    **dict.fromkeys(_VECTORS, ""),
    **{Column[f"{fighter}_{axis}"]: "m" for fighter in _FIGHTERS for axis in "XYZ"},
    **{Column[f"{fighter}_ANIMATION"]: "id" for fighter in _FIGHTERS},
    Column.DISTANCE: "m",
    Column.FLASKS: "flasks",
    Column.LOCKED: "flag",
}


def column_limits(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return the least and greatest value of every State column in a scenario's fights, (25,) each.

    The boss's HP never exceeds that of the start. Places lie within the arena's radius of its centre, the height too:
    the simulator's arena is flat, a game's is not.

    Raises:
        DataError: as `load_boss` and `load_player`, for their files.
    """
    low, high = np.zeros(STATE_SIZE), np.ones(STATE_SIZE)
    arena, columns = scenario.arena, [*_ANGLES]
    low[columns], high[columns] = -pi, pi
    low[[*_VECTORS]] = -1.0
    for axis, centre in zip("XYZ", (*arena.centre_m, arena.height_m), strict=True):
        columns = [Column[f"{fighter}_{axis}"] for fighter in _FIGHTERS]
        low[columns], high[columns] = centre - arena.radius_m, centre + arena.radius_m
    high[Column.DISTANCE] = 2.0 * arena.radius_m
    high[Column.CAMERA_TARGET_ANGLE] = pi
    high[Column.FLASKS] = scenario.flasks
    high[Column.BOSS_HP] = scenario.boss_hp_ratios[0]
    high[Column.BOSS_ANIMATION] = _greatest_boss_id(scenario)
    high[Column.PLAYER_ANIMATION] = max(one.id for one in load_player(scenario.player).animations.known().values())
    return low.astype(np.float32), high.astype(np.float32)


def _greatest_boss_id(scenario: Scenario) -> int:
    bosses = [load_boss(phase.boss) for phase in scenario.phases()]
    animations = [one for boss in bosses for one in (*boss.moves, *boss.animations.known().values())]
    changes = () if scenario.transition is None else (scenario.transition.animation,)
    return max(int(one.id) for one in (*animations, *changes))


def observation_limits(observation: ObservationMap, scenarios: Sequence[Scenario]) -> tuple[Floats, Floats]:
    """Return the least and greatest value of everything observed in the fights of some scenarios, (size,) each.

    Raises:
        DataError: as `column_limits`.
    """
    rows = [np.stack(column_limits(scenario)) for scenario in scenarios]
    limits = np.stack([observation(both, one) for both, one in zip(rows, scenarios, strict=True)])
    limits[:, :, observation.indicators] = np.array([[0.0], [1.0]], np.float32)
    return limits[:, 0].min(axis=0), limits[:, 1].max(axis=0)
