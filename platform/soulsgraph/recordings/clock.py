"""The game time of a recording's rows: as it was measured, or rebuilt from the clocks of the animations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from soulsgraph.recordings.files import Recording
from soulsgraph_envs.combat.rollout import Doubles, Flags
from soulsgraph_envs.core.state import Raw

#: A clock that shows only multiples of this dates nothing to a frame, of 1/60 s.
_COARSE_S = 0.01
_ROUNDING_S = 1e-6
#: A clock that stands still in more than half of the steps is none.
_RUNNING = 0.5
#: The shortest and the longest step that the clocks of animations may show, in nominal steps; the longest of one in
#: which every animation began anew, which may have cut the one before.
_SHORTEST, _LONGEST, _LONGEST_ANEW = 0.1, 3.0, 1.5
#: The share of steps in which the measured clock may be a frame off the animations' clocks, and that frame.
_FEW_APART, _FRAME_S = 0.2, 1.0 / 60.0
_CHARACTERS = (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION)


def measured_clock(elapsed_s: Doubles, game_s: Doubles) -> Doubles:
    """Return the game time of a fight's readings from its first on, (rows,) seconds.

    `game_s` is the game's own clock, which dates a reading to its frame, and is taken where it runs and is fine enough;
    else `elapsed_s`, game time by this machine's clock. Of two readings of one frame it shows the same twice.
    """
    shown = np.rint(game_s / _COARSE_S) * _COARSE_S
    coarse = bool((np.abs(shown - game_s) < _ROUNDING_S).all())
    steps_s = np.diff(game_s)
    running = np.count_nonzero(steps_s > 0.0) > _RUNNING * len(steps_s)
    moving = bool(np.isfinite(game_s).all() and (steps_s >= 0.0).all() and running)
    clock_s: Doubles = game_s if moving and not coarse else elapsed_s
    return np.asarray(clock_s - clock_s[0])


def rebuilt_clock(recording: Recording) -> Doubles:
    """Return the game time of every row from the first on, (rows,) seconds, never decreasing.

    It is `clock_s` where every row has it and the animations' clocks agree: a machine's own clock, which is measured
    where the game's cannot be, runs on where a game under load does not. Else each step is as long as an animation has
    played on in it; where both fighters began another one, what the old one lacked and the new one has played; else its
    nominal time, at the rate of the other steps. Rows without animations, as a fleet's, have their nominal time.
    """
    steps_s = np.maximum(np.diff(recording.column("time_s").astype(np.float64)), 0.0)
    player, boss = (_steps(recording.raw, who) for who in _CHARACTERS)
    # A clock that began anew within the step shows less than the other.
    known = _plausible(np.fmax(player.played, boss.played), steps_s, _LONGEST)
    sure = known > 0.0
    rate = float(np.median(known[sure] / steps_s[sure])) if sure.any() else 1.0
    anew = _plausible(np.fmin(player.anew, boss.anew), steps_s, _LONGEST_ANEW)
    lasted = np.select([sure, anew > 0.0], [known, anew], rate * steps_s)
    lasted = np.maximum(lasted, _plausible(np.fmax(player.least, boss.least), steps_s, _LONGEST))
    clock_s = recording.column("clock_s").astype(np.float64)
    if np.isfinite(clock_s).all() and (np.diff(clock_s) >= 0.0).all():
        apart = np.abs(np.diff(clock_s) - lasted)[sure] > _FRAME_S
        if np.count_nonzero(apart) <= _FEW_APART * len(apart):
            return clock_s
    return np.concatenate([[0.0], np.cumsum(lasted)])


def _plausible(found_s: Doubles, steps_s: Doubles, longest: float) -> Doubles:
    """Return found steps (n,), 0 for each that is missing, or too long or short for one of its nominal time."""
    plausible: Flags = (found_s > _SHORTEST * steps_s) & (found_s < longest * steps_s)
    return np.where(plausible, found_s, 0.0)


class _Steps(NamedTuple):
    """What a character's animations say of the length of each step, (rows - 1,) seconds, NaN where they say nothing.

    `played` is by how much one played on; `anew`, where one began, what the old one lacked and the new one has played,
    which is too much where the old one was cut; `least` is what a new one has played.
    """

    played: Doubles
    anew: Doubles
    least: Doubles


def _steps(raw: Doubles, animation: Raw) -> _Steps:
    """Return the steps by one character's animations, from raw values (rows, 25)."""
    number, time_s, length_s = (raw[:, animation + place] for place in range(3))
    same = (number[1:] == number[:-1]) & (length_s[1:] == length_s[:-1])
    later = same & (time_s[1:] >= time_s[:-1])
    # One that is over stands at its end.
    on = later & (time_s[1:] > time_s[:-1]) & (time_s[1:] < length_s[1:])
    least = np.where(later, np.nan, time_s[1:])
    return _Steps(np.where(on, np.diff(time_s), np.nan), least + length_s[:-1] - time_s[:-1], least)
