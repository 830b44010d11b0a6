"""Whether the animations that a skill observes still predict what they predicted in the home domain.

An animation is a cue: its number and progress predict what comes when. Upstream skills decide how often
a cue is seen, never what it means, so cues are compared one by one: is it known, does it play as
fast, and does a blow that lands during it cost as much?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.episodes import DecisionColumns
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.state import Column

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_PROGRESS = {Column.BOSS_ANIMATION: Column.BOSS_PROGRESS, Column.PLAYER_ANIMATION: Column.PLAYER_PROGRESS}
#: Least HP that a blow takes: what float32 rounding takes is none.
_BLOW = 1e-3
#: Least observations of a cue in each domain from which its tempo and cost are evaluated.
_LEAST_SEEN = 10


@dataclass(frozen=True)
class Cue:
    """One animation that a skill observes, and its share of the decisions in the shifted domain.

    Tempo and cost are the shifted mean as a share of the home mean, 1 without enough to compare, with the
    change in standard errors. `home_share` is its share of the home decisions.
    """

    column: Column
    number: int
    home_share: float
    share: float
    tempo: float = 1.0
    tempo_errors: float = 0.0
    cost: float = 1.0
    cost_errors: float = 0.0

    @property
    def name(self) -> str:
        """Name the column and the animation's number."""
        return f"{self.column.name.lower()} {self.number}"


@dataclass(frozen=True)
class Threshold:
    """When a cue counts as changed: the change of tempo or cost and its certainty; and when it counts as known."""

    change: float
    errors: float
    known_share: float


def compare_cues(skill: Skill, home: DecisionColumns, shifted: DecisionColumns) -> tuple[Cue, ...]:
    """Compare every cue of the shifted domain with the same one at home; empty for a skill that observes none."""
    return tuple(
        _cue(column, number, home, shifted)
        for column in _PROGRESS
        if column in skill.observation.columns
        for number in np.unique(shifted.rows[:, column])
    )


def _cue(column: Column, number: float, home: DecisionColumns, shifted: DecisionColumns) -> Cue:
    seen = [(played.rows[:, column] == number, played) for played in (home, shifted)]
    (at_home, _), (elsewhere, _) = seen
    tempo = _change(*(_tempo(column, where, played) for where, played in seen))
    cost = 1.0, 0.0
    if column == Column.BOSS_ANIMATION:
        cost = _change(*(_costs(where, played) for where, played in seen))
    return Cue(column, int(number), float(at_home.mean()), float(elsewhere.mean()), *tempo, *cost)


def _followed(seen: Flags, played: DecisionColumns) -> npt.NDArray[np.int64]:
    """Return the decisions that are followed by another one of the same episode."""
    return np.flatnonzero(seen[:-1] & (played.episodes[:-1] == played.episodes[1:]))


def _tempo(column: Column, seen: Flags, played: DecisionColumns) -> Doubles:
    """Return the progress per tick where the animation continued to the next decision."""
    at = _followed(seen, played)
    before, after = played.rows[at], played.rows[at + 1]
    progress = _PROGRESS[column]
    went_on = (before[:, column] == after[:, column]) & (after[:, progress] > before[:, progress])
    went_on &= after[:, progress] < 1.0
    rates: Doubles = (after[:, progress] - before[:, progress])[went_on] / played.ticks[at][went_on].astype(np.float64)
    return rates


def _costs(seen: Flags, played: DecisionColumns) -> Doubles:
    """Return the share of HP that each blow took."""
    at = _followed(seen, played)
    lost = (played.rows[at, Column.PLAYER_HP] - played.rows[at + 1, Column.PLAYER_HP]).astype(np.float64)
    blows: Doubles = lost[lost > _BLOW]
    return blows


def _change(home: Doubles, shifted: Doubles) -> tuple[float, float]:
    """Return the ratio of the means, and their difference in Welch's standard errors."""
    if min(len(home), len(shifted)) < _LEAST_SEEN:
        return 1.0, 0.0
    difference = float(shifted.mean() - home.mean())
    error = float(np.sqrt(home.var(ddof=1) / len(home) + shifted.var(ddof=1) / len(shifted)))
    return float(shifted.mean() / home.mean()), difference / max(error, 1e-12)


def changed_cues(cues: Iterable[Cue], threshold: Threshold) -> list[tuple[Cue, str]]:
    """Return the cues that are new or changed, and how."""
    found = [(cue, _what_changed(cue, threshold)) for cue in cues]
    return [(cue, change) for cue, change in found if change]


def changed_decisions(cues: Iterable[Cue]) -> float:
    """Return a lower bound of the share of decisions that see one of these cues: boss and player are seen together."""
    shares: dict[Column, float] = {}
    for cue in cues:
        shares[cue.column] = shares.get(cue.column, 0.0) + cue.share
    return max(shares.values(), default=0.0)


def _what_changed(cue: Cue, threshold: Threshold) -> str:
    if cue.home_share < threshold.known_share:
        return "new"
    for word, ratio, errors in (("tempo", cue.tempo, cue.tempo_errors), ("cost", cue.cost, cue.cost_errors)):
        if abs(ratio - 1.0) >= threshold.change and abs(errors) >= threshold.errors:
            return f"{word} x{ratio:.2f}"
    return ""
