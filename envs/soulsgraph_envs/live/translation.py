"""Translate a reading of a game into the 25 raw values."""

from __future__ import annotations

from math import isfinite, nan

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.animations import AnimationTable
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.state import RAW_SIZE, Raw, wrap_angle

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
