"""Whether a skill's own actions still lead to what they led to at home, decision by decision.

What follows a decision in the new fight is compared with what followed the most alike decisions for the same action at
home (nearest neighbours): whatever else changed the situation is in both. What changed whatever the skill did, as the
pace at which another skill's action moves the player, shows where it idles as well, and does not count as its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.combat.rollout import DecisionColumns, Doubles, Flags, Integers
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills import Skill

#: How many decisions at home one in the new fight is compared with.
NEIGHBOURS = 10
#: How far apart two animations count, in deviations of other columns.
_OTHER_ANIMATION = 3.0
#: Fewest decisions for an action in the new fight, and fewest episodes with one, that say something.
LEAST_DECISIONS, LEAST_EPISODES = 15, 4
#: Standard errors from which a change is certain, and its least size in deviations of what followed at home.
CERTAIN_ERRORS, MATERIAL_CHANGE = 4.0, 0.2

_ANIMATIONS = (Column.BOSS_ANIMATION, Column.PLAYER_ANIMATION)
_CAMERA, _PLAYER = (Column.CAMERA_X, Column.CAMERA_Y, Column.CAMERA_Z), (Column.PLAYER_X, Column.PLAYER_Y)
_CHANGES = (Column.STAMINA, Column.PLAYER_HP, Column.BOSS_HP, Column.DISTANCE, Column.LOCKED)
#: What may follow an action, in the order of the columns of `followed`.
FOLLOWING = (*(column.name.lower() for column in _CHANGES), "metres moved", "camera turned")


@dataclass(frozen=True)
class Consequence:
    """What changed of what follows an action: in deviations of the same at home, and in standard errors."""

    action: str
    what: str
    change: float
    errors: float

    def __str__(self) -> str:
        return f"{self.what} after {self.action} changed by {self.change:+.1f} deviations"


@dataclass(frozen=True)
class FollowedDecisions:
    """A skill's decisions (n,) with what followed each (n, 7), the situations (n, columns), and their episodes."""

    situations: Doubles
    animations: Integers
    actions: Integers
    following: Doubles
    episodes: Integers


def followed(skill: Skill, taken: DecisionColumns, columns: Sequence[Column]) -> FollowedDecisions:
    """Return what followed decisions within the ticks of the skill's longest step; the last of an episode are left out.

    `columns` are those of the situation.
    """
    starts = np.cumsum(taken.ticks) - taken.ticks
    ends = np.searchsorted(starts, starts + skill.longest_ticks)
    episode_ends = np.searchsorted(taken.episodes, taken.episodes, side="right")
    known = ends < episode_ends
    before, after = taken.rows[known], taken.rows[ends[known]]
    plain = [column for column in columns if column not in _ANIMATIONS]
    animated = [column for column in columns if column in _ANIMATIONS]
    return FollowedDecisions(
        before[:, plain].astype(np.float64),
        before[:, animated].astype(np.int64),
        taken.actions[known],
        _following(before, after),
        taken.episodes[known],
    )


def _following(before: StateRows, after: StateRows) -> Doubles:
    moved = np.linalg.norm(after[:, _PLAYER].astype(np.float64) - before[:, _PLAYER], axis=1)
    looked = [rows[:, _CAMERA].astype(np.float64) for rows in (before, after)]
    turned = np.arccos(np.clip((looked[0] * looked[1]).sum(axis=1), -1.0, 1.0))
    changes = [after[:, column].astype(np.float64) - before[:, column] for column in _CHANGES]
    return np.column_stack([*changes, moved, turned])


def changed_consequences(
    skill: Skill, home: DecisionColumns, shifted: DecisionColumns, columns: Sequence[Column]
) -> tuple[Consequence, ...]:
    """Return what of a skill's actions leads to something else in the new fight, the most certain first.

    Half of the episodes at home are what decisions are compared with, the other half what the comparison finds where
    nothing changed.
    """
    compute_on_one_thread()
    there, here = followed(skill, shifted, columns), followed(skill, home, columns)
    odd = here.episodes % 2 == 1
    known, control = _part(here, ~odd), _part(here, odd)
    deviation = known.situations.std(axis=0)
    scale = np.where(deviation > 1e-6, deviation, 1.0)
    idle = next((index for index, one in enumerate(skill.actions) if not (one.holds | one.presses)), None)
    shifts = {
        index: _shift(_of(known, index), _of(control, index), _of(there, index), scale)
        for index in range(len(skill.actions))
    }
    beside = None if idle is None else shifts.pop(idle)
    if idle is not None and beside is None:
        # What else changed is not known, and would count as the skill's own.
        return ()
    found = []
    for index, shift in shifts.items():
        if shift is None:
            continue
        for place, what in enumerate(FOLLOWING):
            change, error = shift[0][place], shift[1][place]
            if beside is not None:
                # Its own alone: what differs from what followed where it idled, and is there by itself.
                apart = change - beside[0][place]
                certain = abs(apart) >= CERTAIN_ERRORS * float(np.hypot(error, beside[1][place]))
                if not certain or abs(apart) < MATERIAL_CHANGE:
                    continue
            if abs(change) >= max(CERTAIN_ERRORS * error, MATERIAL_CHANGE):
                # What always follows has no error at all.
                errors = change / error if error > 0.0 else np.inf * np.sign(change)
                found.append(Consequence(skill.actions[index].name, what, float(change), float(errors)))
    return tuple(sorted(found, key=lambda one: -abs(one.errors)))


def _part(whole: FollowedDecisions, rows: Flags) -> FollowedDecisions:
    return FollowedDecisions(*(column[rows] for column in vars(whole).values()))


def _of(whole: FollowedDecisions, action: int) -> FollowedDecisions:
    return _part(whole, whole.actions == action)


def _shift(
    known: FollowedDecisions, control: FollowedDecisions, there: FollowedDecisions, scale: Doubles
) -> tuple[Doubles, Doubles] | None:
    """Return the mean change of what follows, (7,), in deviations at home, and its standard error; None if unknown."""
    few = len(there.actions) < LEAST_DECISIONS or min(len(known.actions), len(control.actions)) < 2 * NEIGHBOURS
    if few or min(len({*part.episodes.tolist()}) for part in (there, control)) < LEAST_EPISODES:
        return None
    deviation = known.following.std(axis=0)
    deviation = np.where(deviation > 1e-9, deviation, np.maximum(np.abs(known.following).mean(axis=0), 1e-3))
    usual, usual_error = _mean(control, known, scale)
    now, error = _mean(there, known, scale)
    return (now - usual) / deviation, np.hypot(error, usual_error) / deviation


def _mean(asked: FollowedDecisions, known: FollowedDecisions, scale: Doubles) -> tuple[Doubles, Doubles]:
    """Return the mean of what followed less what followed its neighbours, (7,), and its error over episodes."""
    residuals = asked.following - _expected(asked, known, scale)
    mean = residuals.mean(axis=0)
    _, groups = np.unique(asked.episodes, return_inverse=True)
    sums = np.zeros((groups.max() + 1, residuals.shape[1]))
    np.add.at(sums, groups, residuals - mean)
    # Of few episodes the mean takes up a part of what they differ by.
    inflated = len(sums) / max(len(sums) - 1, 1)
    return mean, np.sqrt(inflated * (sums**2).sum(axis=0)) / len(residuals)


def _expected(asked: FollowedDecisions, known: FollowedDecisions, scale: Doubles) -> Doubles:
    """Return the mean of what followed the nearest decisions at home, (n, 7)."""
    points, places = known.situations / scale, asked.situations / scale
    distances = (places**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None] - 2.0 * places @ points.T
    for column in range(known.animations.shape[1]):
        distances += _OTHER_ANIMATION**2 * (asked.animations[:, column][:, None] != known.animations[:, column][None])
    nearest = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return np.asarray(known.following[nearest].mean(axis=1))
