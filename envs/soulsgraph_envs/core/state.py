"""The State: 25 named float32 columns (Eq. 15), made from a game's raw values by Eq. 3-9.

Coordinates are (x, y, z) with z up, in the game's metre-like units. Angles are in radians and
wrapped into [-pi, pi]; ratios are in [0, 1]. The boss HP column is HP over the boss's full HP in
every phase, for Iudex literally HP / 1037; an observation map may rescale it to the scenario's HP
window (see `skills.ObservationMap`), rewards and ends read the column as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import acos, floor, pi, sqrt

import numpy as np
import numpy.typing as npt
from numba import njit

#: (lanes, 25) float32, columns as in `Column`.
StateRows = npt.NDArray[np.float32]
#: (lanes, 25) float64, columns as in `Raw`.
RawValues = npt.NDArray[np.float64]


class Column(IntEnum):
    """One column of the State, in the order of Eq. 15."""

    BOSS_ANIMATION = 0
    BOSS_PROGRESS = 1
    PLAYER_ANIMATION = 2
    PLAYER_PROGRESS = 3
    STAMINA = 4
    PLAYER_HP = 5
    BOSS_HP = 6
    BOSS_ANGLE = 7
    PLAYER_ANGLE = 8
    FLASKS = 9
    DISTANCE = 10
    DIRECTION_X = 11
    DIRECTION_Y = 12
    DIRECTION_Z = 13
    CAMERA_X = 14
    CAMERA_Y = 15
    CAMERA_Z = 16
    PLAYER_X = 17
    PLAYER_Y = 18
    PLAYER_Z = 19
    BOSS_X = 20
    BOSS_Y = 21
    BOSS_Z = 22
    CAMERA_TARGET_ANGLE = 23
    LOCKED = 24


class Raw(IntEnum):
    """One value as a game gives it: points, seconds, metres, radians, animation ids of the skills."""

    PLAYER_X = 0
    PLAYER_Y = 1
    PLAYER_Z = 2
    BOSS_X = 3
    BOSS_Y = 4
    BOSS_Z = 5
    CAMERA_X = 6
    CAMERA_Y = 7
    CAMERA_Z = 8
    PLAYER_ANGLE = 9
    BOSS_ANGLE = 10
    PLAYER_HP = 11
    PLAYER_HP_MAX = 12
    STAMINA = 13
    STAMINA_MAX = 14
    BOSS_HP = 15
    BOSS_HP_MAX = 16
    LOCKED = 17
    FLASKS = 18
    BOSS_ANIMATION = 19
    BOSS_ANIMATION_TIME_S = 20
    BOSS_ANIMATION_LENGTH_S = 21
    PLAYER_ANIMATION = 22
    PLAYER_ANIMATION_TIME_S = 23
    PLAYER_ANIMATION_LENGTH_S = 24


STATE_SIZE = len(Column)
RAW_SIZE = len(Raw)

_PLACES = tuple(Raw[f"{who}_{axis}"] for who in ("PLAYER", "BOSS") for axis in "XYZ")
_OWN = {Column.BOSS_ANIMATION, Column.PLAYER_ANIMATION, Column.FLASKS, Column.LOCKED, Column.BOSS_ANGLE}
_OWN |= {Column[f"{what}_{axis}"] for what in ("CAMERA", "PLAYER", "BOSS") for axis in "XYZ"} | {Column.PLAYER_ANGLE}
#: The raw values that each column of the State is made of.
MADE_OF: Mapping[Column, tuple[Raw, ...]] = {
    **{column: (Raw[column.name],) for column in _OWN},
    **{Column[name]: (Raw[name], Raw[f"{name}_MAX"]) for name in ("STAMINA", "PLAYER_HP", "BOSS_HP")},
    **{
        Column[f"{who}_PROGRESS"]: (Raw[f"{who}_ANIMATION_TIME_S"], Raw[f"{who}_ANIMATION_LENGTH_S"])
        for who in ("PLAYER", "BOSS")
    },
    **{Column[name]: _PLACES for name in ("DISTANCE", "DIRECTION_X", "DIRECTION_Y", "DIRECTION_Z")},
    Column.CAMERA_TARGET_ANGLE: (*_PLACES, Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z),
}

# Plain integers: compiled code cannot read enum members of a foreign module as constants.
_C = {name: int(value) for name, value in Column.__members__.items()}
_DIRECTION, _CAMERA, _PLAYER, _BOSS = _C["DIRECTION_X"], _C["CAMERA_X"], _C["PLAYER_X"], _C["BOSS_X"]
_KAPPA_E, _RHO_E, _KAPPA_P, _RHO_P = 0, 1, 2, 3
_SIGMA, _H, _H_E, _O_E, _O_P, _N, _D, _ALPHA, _LOCKED = 4, 5, 6, 7, 8, 9, 10, 23, 24
_R = {name: int(value) for name, value in Raw.__members__.items()}
_R_HP, _R_HP_MAX, _R_SP, _R_SP_MAX = _R["PLAYER_HP"], _R["PLAYER_HP_MAX"], _R["STAMINA"], _R["STAMINA_MAX"]
_R_BOSS_HP, _R_BOSS_HP_MAX = _R["BOSS_HP"], _R["BOSS_HP_MAX"]
_R_PLAYER, _R_BOSS, _R_CAMERA = _R["PLAYER_X"], _R["BOSS_X"], _R["CAMERA_X"]
_R_ANGLE_P, _R_ANGLE_E, _R_LOCKED, _R_FLASKS = _R["PLAYER_ANGLE"], _R["BOSS_ANGLE"], _R["LOCKED"], _R["FLASKS"]
_R_ANIM_E, _R_ANIM_P = _R["BOSS_ANIMATION"], _R["PLAYER_ANIMATION"]


@njit(cache=True)
def wrap_angle(angle_rad: float) -> float:
    """Wrap an angle into [-pi, pi]."""
    if -pi <= angle_rad <= pi:
        return angle_rad
    return angle_rad - 2.0 * pi * floor((angle_rad + pi) / (2.0 * pi))


@njit(cache=True)
def _ratio(value: float, maximum: float) -> float:
    if maximum <= 0.0:
        return 0.0
    return min(max(value / maximum, 0.0), 1.0)


@njit(cache=True)
def _target_angle(raw: RawValues, lane: int, direction: npt.NDArray[np.float64]) -> float:
    """Return Eq. 9; 0 where the player stands in the boss or the camera has no direction."""
    dot, length = 0.0, 0.0
    for i in range(3):
        c = raw[lane, _R_CAMERA + i]
        dot += c * direction[i]
        length += c * c
    if length <= 0.0 or (direction[0] == 0.0 and direction[1] == 0.0 and direction[2] == 0.0):
        return 0.0
    return acos(min(max(dot / sqrt(length), -1.0), 1.0))


@njit(cache=True)
def fill_state(raw: RawValues, rows: StateRows) -> None:
    """Write the State row of every lane in place: raw (lanes, 25) -> rows (lanes, 25), Eq. 3-9 and 15.

    Compiled and scalar, so a lane's row never depends on how many lanes there are.
    """
    direction = np.zeros(3)
    for lane in range(raw.shape[0]):
        squared = 0.0
        for i in range(3):
            p, e = raw[lane, _R_PLAYER + i], raw[lane, _R_BOSS + i]
            direction[i] = e - p
            squared += (e - p) * (e - p)
            rows[lane, _PLAYER + i] = p
            rows[lane, _BOSS + i] = e
            rows[lane, _CAMERA + i] = raw[lane, _R_CAMERA + i]
        distance = sqrt(squared)
        for i in range(3):
            direction[i] = direction[i] / distance if distance > 0.0 else 0.0
            rows[lane, _DIRECTION + i] = direction[i]
        rows[lane, _KAPPA_E] = raw[lane, _R_ANIM_E]
        rows[lane, _RHO_E] = _ratio(raw[lane, _R_ANIM_E + 1], raw[lane, _R_ANIM_E + 2])
        rows[lane, _KAPPA_P] = raw[lane, _R_ANIM_P]
        rows[lane, _RHO_P] = _ratio(raw[lane, _R_ANIM_P + 1], raw[lane, _R_ANIM_P + 2])
        rows[lane, _SIGMA] = _ratio(raw[lane, _R_SP], raw[lane, _R_SP_MAX])
        rows[lane, _H] = _ratio(raw[lane, _R_HP], raw[lane, _R_HP_MAX])
        rows[lane, _H_E] = _ratio(raw[lane, _R_BOSS_HP], raw[lane, _R_BOSS_HP_MAX])
        rows[lane, _O_E] = wrap_angle(raw[lane, _R_ANGLE_E])
        rows[lane, _O_P] = wrap_angle(raw[lane, _R_ANGLE_P])
        rows[lane, _N] = raw[lane, _R_FLASKS]
        rows[lane, _D] = distance
        rows[lane, _ALPHA] = _target_angle(raw, lane, direction)
        rows[lane, _LOCKED] = raw[lane, _R_LOCKED]


def state_rows(raw: RawValues) -> StateRows:
    """Make new State rows from raw values, (lanes, 25) -> (lanes, 25) float32."""
    rows = np.empty((raw.shape[0], STATE_SIZE), dtype=np.float32)
    fill_state(np.ascontiguousarray(raw, dtype=np.float64), rows)
    return rows
