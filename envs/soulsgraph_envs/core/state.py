"""What a tick shows and what it sends: the State's columns, the raw values they are made of, and the controls.

A State is 25 named float32 columns (Eq. 15), made from a game's raw values by Eq. 3-9.

Coordinates are (x, y, z) with z up, in the game's metre-like units. Angles are in radians and
wrapped into [-pi, pi]; ratios are in [0, 1]. The boss HP column is HP over the boss's full HP in
every phase, for Iudex literally HP / 1037; an observation map may rescale it to the scenario's HP
window (see `skills.skill.ObservationMap`), rewards and ends read the column as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from math import acos, floor, pi, sqrt

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.config import by_name

#: (lanes, 25) float32, columns as in `Column`.
StateRows = npt.NDArray[np.float32]
#: (lanes, 25) float64, columns as in `Raw`.
RawValues = npt.NDArray[np.float64]


@by_name
class Column(IntEnum):
    """One column of the State, in the order of Eq. 15."""

    BOSS_ANIMATION, BOSS_PROGRESS, PLAYER_ANIMATION, PLAYER_PROGRESS = range(4)
    STAMINA, PLAYER_HP, BOSS_HP, BOSS_ANGLE, PLAYER_ANGLE, FLASKS, DISTANCE = range(4, 11)
    DIRECTION_X, DIRECTION_Y, DIRECTION_Z = range(11, 14)
    CAMERA_X, CAMERA_Y, CAMERA_Z = range(14, 17)
    PLAYER_X, PLAYER_Y, PLAYER_Z = range(17, 20)
    BOSS_X, BOSS_Y, BOSS_Z = range(20, 23)
    CAMERA_TARGET_ANGLE, LOCKED = range(23, 25)


@by_name
class Raw(IntEnum):
    """One value as a game gives it: points, seconds, metres, radians, animation ids of the skills."""

    PLAYER_X, PLAYER_Y, PLAYER_Z = range(3)
    BOSS_X, BOSS_Y, BOSS_Z = range(3, 6)
    CAMERA_X, CAMERA_Y, CAMERA_Z = range(6, 9)
    PLAYER_ANGLE, BOSS_ANGLE = range(9, 11)
    PLAYER_HP, PLAYER_HP_MAX, STAMINA, STAMINA_MAX, BOSS_HP, BOSS_HP_MAX = range(11, 17)
    LOCKED, FLASKS = range(17, 19)
    BOSS_ANIMATION, BOSS_ANIMATION_TIME_S, BOSS_ANIMATION_LENGTH_S = range(19, 22)
    PLAYER_ANIMATION, PLAYER_ANIMATION_TIME_S, PLAYER_ANIMATION_LENGTH_S = range(22, 25)


STATE_SIZE = len(Column)
RAW_SIZE = len(Raw)

_PLACES = tuple(Raw[f"{who}_{axis}"] for who in ("PLAYER", "BOSS") for axis in "XYZ")
#: The raw values that each column of the State is made of.
MADE_OF: Mapping[Column, tuple[Raw, ...]] = {
    **{column: (Raw[column.name],) for column in Column if column.name in Raw.__members__},
    **{Column[name]: (Raw[name], Raw[f"{name}_MAX"]) for name in ("STAMINA", "PLAYER_HP", "BOSS_HP")},
    **{
        Column[f"{who}_PROGRESS"]: (Raw[f"{who}_ANIMATION_TIME_S"], Raw[f"{who}_ANIMATION_LENGTH_S"])
        for who in ("PLAYER", "BOSS")
    },
    **{Column[name]: _PLACES for name in ("DISTANCE", "DIRECTION_X", "DIRECTION_Y", "DIRECTION_Z")},
    Column.CAMERA_TARGET_ANGLE: (*_PLACES, Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z),
}


@cached()
def wrap_angle(angle_rad: float) -> float:
    """Wrap an angle into [-pi, pi]."""
    if -pi <= angle_rad <= pi:
        return angle_rad
    return angle_rad - 2.0 * pi * floor((angle_rad + pi) / (2.0 * pi))


@cached()
def _ratio(value: float, maximum: float) -> float:
    if maximum <= 0.0:
        return 0.0
    return min(max(value / maximum, 0.0), 1.0)


@cached()
def _target_angle(raw: RawValues, lane: int, direction: npt.NDArray[np.float64]) -> float:
    """Return Eq. 9; 0 where the player stands in the boss or the camera has no direction."""
    dot, length = 0.0, 0.0
    for i in range(3):
        c = raw[lane, Raw.CAMERA_X + i]
        dot += c * direction[i]
        length += c * c
    if length <= 0.0 or (direction[0] == 0.0 and direction[1] == 0.0 and direction[2] == 0.0):
        return 0.0
    return acos(min(max(dot / sqrt(length), -1.0), 1.0))


@cached()
def fill_state(raw: RawValues, rows: StateRows) -> None:
    """Write the State row of every lane in place: raw (lanes, 25) -> rows (lanes, 25), Eq. 3-9 and 15.

    Compiled and scalar, so a lane's row never depends on how many lanes there are.
    """
    direction = np.zeros(3)
    for lane in range(raw.shape[0]):
        squared = 0.0
        for i in range(3):
            p, e = raw[lane, Raw.PLAYER_X + i], raw[lane, Raw.BOSS_X + i]
            direction[i] = e - p
            squared += (e - p) * (e - p)
            rows[lane, Column.PLAYER_X + i] = p
            rows[lane, Column.BOSS_X + i] = e
            rows[lane, Column.CAMERA_X + i] = raw[lane, Raw.CAMERA_X + i]
        distance = sqrt(squared)
        for i in range(3):
            direction[i] = direction[i] / distance if distance > 0.0 else 0.0
            rows[lane, Column.DIRECTION_X + i] = direction[i]
        rows[lane, Column.BOSS_ANIMATION] = raw[lane, Raw.BOSS_ANIMATION]
        rows[lane, Column.BOSS_PROGRESS] = _ratio(
            raw[lane, Raw.BOSS_ANIMATION_TIME_S], raw[lane, Raw.BOSS_ANIMATION_LENGTH_S]
        )
        rows[lane, Column.PLAYER_ANIMATION] = raw[lane, Raw.PLAYER_ANIMATION]
        rows[lane, Column.PLAYER_PROGRESS] = _ratio(
            raw[lane, Raw.PLAYER_ANIMATION_TIME_S], raw[lane, Raw.PLAYER_ANIMATION_LENGTH_S]
        )
        rows[lane, Column.STAMINA] = _ratio(raw[lane, Raw.STAMINA], raw[lane, Raw.STAMINA_MAX])
        rows[lane, Column.PLAYER_HP] = _ratio(raw[lane, Raw.PLAYER_HP], raw[lane, Raw.PLAYER_HP_MAX])
        rows[lane, Column.BOSS_HP] = _ratio(raw[lane, Raw.BOSS_HP], raw[lane, Raw.BOSS_HP_MAX])
        rows[lane, Column.BOSS_ANGLE] = wrap_angle(raw[lane, Raw.BOSS_ANGLE])
        rows[lane, Column.PLAYER_ANGLE] = wrap_angle(raw[lane, Raw.PLAYER_ANGLE])
        rows[lane, Column.FLASKS] = raw[lane, Raw.FLASKS]
        rows[lane, Column.DISTANCE] = distance
        rows[lane, Column.CAMERA_TARGET_ANGLE] = _target_angle(raw, lane, direction)
        rows[lane, Column.LOCKED] = raw[lane, Raw.LOCKED]


def state_rows(raw: RawValues) -> StateRows:
    """Make new State rows from raw values, (lanes, 25) -> (lanes, 25) float32."""
    assert raw.shape[1:] == (RAW_SIZE,), raw.shape
    rows = np.empty((raw.shape[0], STATE_SIZE), dtype=np.float32)
    fill_state(np.ascontiguousarray(raw, dtype=np.float64), rows)
    return rows


#: One tick's controls of every lane, (lanes,): a bit set of `Control`.
Controls = npt.NDArray[np.uint32]


@by_name
class Control(IntFlag):
    """One button or stick direction, by what it means in the game."""

    NONE = 0
    FORWARD, BACK, LEFT, RIGHT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
    ROLL, LIGHT_ATTACK, USE_ITEM, LOCK_ON = 1 << 4, 1 << 5, 1 << 6, 1 << 7
    CAMERA_UP, CAMERA_DOWN, CAMERA_LEFT, CAMERA_RIGHT = 1 << 8, 1 << 9, 1 << 10, 1 << 11
    HEAVY_ATTACK, PARRY, JUMP, WEAPON_ART, INTERACT = 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16


#: Every control there is: a game is never sent a bit outside this set.
ALL_CONTROLS = Control(sum(Control))
