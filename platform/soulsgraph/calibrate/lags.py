"""Sources that are read late: the lag in rows, estimated from events that must coincide, and its correction.

A fighter's place changes while its walking animation plays; HP fall in the row in which the player staggers. Places are
the measure of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from soulsgraph.calibrate.moves import blows
from soulsgraph.calibrate.rows import FightRows, contact_m, pairs_of
from soulsgraph_envs.combat.rollout import Flags, Integers
from soulsgraph_envs.core.scenario import BossData, PlayerData
from soulsgraph_envs.core.state import Raw

#: What may be read apart from the places, in the order in which it is put right.
Source = Literal["the boss's animation", "the player's animation", "the player's HP"]
_COLUMNS: Mapping[Source, Sequence[Raw]] = {
    "the boss's animation": (Raw.BOSS_ANIMATION, Raw.BOSS_ANIMATION_TIME_S, Raw.BOSS_ANIMATION_LENGTH_S),
    "the player's animation": (Raw.PLAYER_ANIMATION, Raw.PLAYER_ANIMATION_TIME_S, Raw.PLAYER_ANIMATION_LENGTH_S),
    "the player's HP": (Raw.PLAYER_HP,),
}
#: Rows that a source may be late by.
_ROWS = range(-2, 4)
#: The largest difference between two animations that advance alike in a step, and the smallest error of a clock, in s.
_ALIKE_S, _OFF_S = 0.01, 0.04
#: The speed above which a fighter moves, in m/s.
_STILL_M_S = 0.15
#: The distance beyond contact at which neither fighter blocks the other.
_CLEAR_M = 0.3
#: A lag is accepted if it reduces the contradictions by more than this number of standard deviations of counts.
_SURE = 4.0
#: A source is unsteady if its lag leaves more than this share of the mean contradictions over lags, or of `_FEWEST` if
#: that is more. A clock is wrong if more than this share of its steps differs from the animations.
_UNSTEADY, _FEWEST, _OTHERWISE = 0.7, 10, 0.02


class Lag(NamedTuple):
    """By how many rows a source is read later than the places, and whether most of its events agree on that."""

    rows: int
    steady: bool


def align(
    fights: Sequence[FightRows], boss: BossData, player: PlayerData
) -> tuple[Sequence[FightRows], dict[Source, Lag]]:
    """Return fights with the lag of every source removed, and the lags."""
    lags: dict[Source, Lag] = {}
    for source in _COLUMNS:
        against = np.sum([_evidence(source, fight, boss, player) for fight in fights], axis=0)
        # The lag with the fewest contradictions, 0 unless it is clear.
        as_read, fewest = int(against[_ROWS.index(0)]), int(against.min())
        clear = as_read - fewest > _SURE * (as_read + fewest) ** 0.5
        rows, left = (_ROWS[int(against.argmin())], fewest) if clear else (0, as_read)
        lags[source] = Lag(rows, left <= _UNSTEADY * max(float(against.mean()), _FEWEST))
        if rows:
            fights = [moved for fight in fights if len(moved := _moved(fight, source, rows)) > 1]
    return fights, lags


def clock_is_right(fights: Sequence[FightRows]) -> bool:
    """Return whether nearly all steps of the clock are as long as the animations advanced in them."""
    before, after = pairs_of(fights)
    played = []
    for source in ("the boss's animation", "the player's animation"):
        number, time_s, length_s = _COLUMNS[source]
        advanced = after.raw[:, time_s] - before.raw[:, time_s]
        on = (after.raw[:, number] == before.raw[:, number]) & (advanced > 0.0)
        played.append(np.where(on & (after.raw[:, time_s] < after.raw[:, length_s]), advanced, np.nan))
    both = np.abs(played[0] - played[1]) < _ALIKE_S
    wrong = np.abs(after.clock_s - before.clock_s - played[0])[both] > _OFF_S
    return bool(wrong.sum() <= _OTHERWISE * both.sum())


def _evidence(source: Source, fight: FightRows, boss: BossData, player: PlayerData) -> Integers:
    """Return how many rows contradict each lag, (lags,)."""
    if source == "the player's HP":
        begun = [blow.row for blow in blows(fight, player)]
        fell = np.append(False, fight.hp[1:] < fight.raw[:-1, Raw.PLAYER_HP] - 0.5)
        return np.array([(~_shifted(fell, rows)[begun]).sum() for rows in _ROWS])
    if source == "the boss's animation":
        animation, places = fight.boss, fight.boss_m
        walks = [boss.animations.approach.id, boss.animations.back_off.id]
    else:
        animation, places, walks = fight.player, fight.player_m, [player.animations.run.id]
    gone = np.hypot(*np.diff(places, axis=0).T)
    still = np.append(False, gone <= _STILL_M_S * np.maximum(np.diff(fight.clock_s), 1e-9))
    # A body in the way stops who walks.
    clear = fight.distance_m > contact_m(boss, player) + _CLEAR_M
    still[1:] &= clear[1:] & clear[:-1]
    # Whoever walks at a tick's end has gone; who stands there may have stopped in its midst.
    walking = np.isin(animation, walks)
    return np.array([int((_shifted(walking, rows) & still).sum()) for rows in _ROWS])


def _shifted(flags: Flags, rows: int) -> Flags:
    """Return flags moved up by a number of rows, (rows,); False beyond the ends."""
    kept, later = _kept(len(flags), rows), np.zeros_like(flags)
    later[kept] = flags[kept + rows]
    return later


def _kept(count: int, rows: int) -> Integers:
    return np.arange(max(-rows, 0), count - max(rows, 0))


def _moved(fight: FightRows, source: Source, rows: int) -> FightRows:
    """Return a fight with one source moved up by a number of rows; rows that then lack it are removed."""
    kept = _kept(len(fight), rows)
    moved, later = fight.where(kept), fight.where(kept + rows)
    columns = np.array(_COLUMNS[source])
    moved.raw[:, columns] = later.raw[:, columns]
    boss = later.boss if source == "the boss's animation" else moved.boss
    return replace(moved, boss=boss, hp=later.hp if source == "the player's HP" else moved.hp)
