"""Which animations that a skill observes announce something else than at home: new, of another tempo or cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.combat.rollout import DecisionColumns, Doubles, Integers
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills import Skill

#: Columns that hold numbers of animations, whose order means nothing, and the columns of their progress.
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

    @property
    def change(self) -> str:
        """What changed; empty where nothing did."""
        if self.home_share < KNOWN_SHARE:
            return "new"
        for word, ratio, errors in (("tempo", self.tempo, self.tempo_errors), ("cost", self.cost, self.cost_errors)):
            if abs(ratio - 1.0) >= MATERIAL_CHANGE and abs(errors) >= CERTAIN_ERRORS:
                return f"{word} x{ratio:.2f}"
        return ""


def compare_cues(skill: Skill, home: DecisionColumns, shifted: DecisionColumns) -> tuple[Cue, ...]:
    """Compare every cue of the shifted domain with the same one at home; empty for a skill that observes none."""
    return tuple(
        _cue(column, number, home, shifted)
        for column in _PROGRESS
        if column in skill.observation.columns
        for number in np.unique(shifted.rows[:, column])
    )


def _cue(column: Column, number: float, home: DecisionColumns, shifted: DecisionColumns) -> Cue:
    masks = [played.rows[:, column] == number for played in (home, shifted)]
    home_share, share = (float(seen.mean()) for seen in masks)
    tempos, costs = [], []
    for played, seen in zip((home, shifted), masks, strict=True):
        # Only what another decision of the same episode follows shows how it went on.
        at = np.flatnonzero(seen[:-1] & (played.episodes[:-1] == played.episodes[1:]))
        before, after = played.rows[at], played.rows[at + 1]
        tempos.append(tempo(column, before, after, played.ticks[at]))
        lost = (before[:, Column.PLAYER_HP] - after[:, Column.PLAYER_HP]).astype(np.float64)
        costs.append(lost[lost > _BLOW])
    cost = _change(*costs) if column == Column.BOSS_ANIMATION else (1.0, 0.0)
    pace = _change(*tempos)
    if pace[1] and abs(float(np.median(tempos[1]) / np.median(tempos[0])) - 1.0) < TYPICAL_CHANGE:
        pace = 1.0, 0.0
    return Cue(column, int(number), home_share, share, *pace, *cost)


def tempo(column: Column, before: StateRows, after: StateRows, ticks: Integers) -> Doubles:
    """Return the progress per tick where the animation continued to the next decision."""
    progress = _PROGRESS[column]
    gained = after[:, progress] - before[:, progress]
    went_on = (before[:, column] == after[:, column]) & (gained > 0.0) & (after[:, progress] < 1.0)
    return np.asarray(gained[went_on] / ticks[went_on].astype(np.float64))


def _change(home: Doubles, shifted: Doubles) -> tuple[float, float]:
    """Return the ratio of the means, and their difference in Welch's standard errors."""
    if min(len(home), len(shifted)) < _LEAST_SEEN:
        return 1.0, 0.0
    difference = float(shifted.mean() - home.mean())
    error = float(np.sqrt(home.var(ddof=1) / len(home) + shifted.var(ddof=1) / len(shifted)))
    return float(shifted.mean() / home.mean()), difference / max(error, 1e-12)


#: Least change of a tempo or a cost: a move of two seconds that passes 5 % faster ends one
#: control tick earlier, less than that no skill can act on.
MATERIAL_CHANGE = 0.05
#: Least change of a tempo's median: what begins anew at any time, as stances do, passes more slowly now and then alone.
TYPICAL_CHANGE = 0.05
#: Least certainty, in standard errors: a false alarm in a thousand for each of some dozens of cues.
CERTAIN_ERRORS = 3.3
#: Least share of the decisions at home that makes a cue known: training hardly ever saw a rarer one.
KNOWN_SHARE = 0.001
#: Least share of decisions with changed cues that is worth an adaptation budget.
CHANGED_DECISIONS = 0.1

_NAMED_CUES = 3


def changed_cues(cues: Sequence[Cue]) -> str:
    """Return in words which cues changed, the most frequent first; empty where few decisions see a changed one."""
    changed = sorted((cue for cue in cues if cue.change), key=lambda cue: -cue.share)
    # Boss and player are seen together: the larger share is a lower bound of the decisions that see either.
    share = max(sum((cue.share for cue in changed if cue.column == column), 0.0) for column in _PROGRESS)
    if share < CHANGED_DECISIONS:
        return ""
    listed = ", ".join(f"{cue.name} {cue.change}" for cue in changed[:_NAMED_CUES])
    more = f" and {len(changed) - _NAMED_CUES} more" if len(changed) > _NAMED_CUES else ""
    return f"in {100.0 * share:.0f} % of its decisions it sees changed animations: {listed}{more}"
