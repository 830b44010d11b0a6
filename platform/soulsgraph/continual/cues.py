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
    """One animation that a skill observes, its share of decisions in the shifted domain, and what changed of it."""

    column: Column
    number: int
    share: float
    change: str = ""
    """As "new", or "tempo x1.20"; empty where nothing changed."""

    @property
    def name(self) -> str:
        """Name the column and the animation's number."""
        return f"{self.column.name.lower()} {self.number}"


def compare_cues(skill: Skill, home: DecisionColumns, shifted: DecisionColumns) -> tuple[Cue, ...]:
    """Compare every cue of the shifted domain with the same one at home; empty for a skill that observes none."""
    return tuple(
        Cue(
            column,
            int(number),
            float((shifted.rows[:, column] == number).mean()),
            _change(column, number, home, shifted),
        )
        for column in _PROGRESS
        if column in skill.observation.columns
        for number in np.unique(shifted.rows[:, column])
    )


def _change(column: Column, number: float, home: DecisionColumns, shifted: DecisionColumns) -> str:
    tempos, costs = [], []
    for played in (home, shifted):
        seen = played.rows[:, column] == number
        if played is home and seen.mean() < KNOWN_SHARE:
            return "new"
        # Only what another decision of the same episode follows shows how it went on.
        at = np.flatnonzero(seen[:-1] & (played.episodes[:-1] == played.episodes[1:]))
        before, after = played.rows[at], played.rows[at + 1]
        tempos.append(tempo(column, before, after, played.ticks[at]))
        lost = (before[:, Column.PLAYER_HP] - after[:, Column.PLAYER_HP]).astype(np.float64)
        costs.append(lost[lost > _BLOW])
    pace = _material("tempo", *tempos)
    if pace and abs(float(np.median(tempos[1]) / np.median(tempos[0])) - 1.0) < TYPICAL_CHANGE:
        pace = ""
    return pace or (_material("cost", *costs) if column == Column.BOSS_ANIMATION else "")


def tempo(column: Column, before: StateRows, after: StateRows, ticks: Integers) -> Doubles:
    """Return the progress per tick where the animation continued to the next decision."""
    progress = _PROGRESS[column]
    gained = after[:, progress] - before[:, progress]
    went_on = (before[:, column] == after[:, column]) & (gained > 0.0) & (after[:, progress] < 1.0)
    return np.asarray(gained[went_on] / ticks[went_on].astype(np.float64))


def _material(what: str, home: Doubles, shifted: Doubles) -> str:
    """Return by which factor a mean changed; empty where that is little, or within Welch's standard errors."""
    if min(len(home), len(shifted)) < _LEAST_SEEN:
        return ""
    ratio, difference = float(shifted.mean() / home.mean()), float(shifted.mean() - home.mean())
    error = float(np.sqrt(home.var(ddof=1) / len(home) + shifted.var(ddof=1) / len(shifted)))
    material = abs(ratio - 1.0) >= MATERIAL_CHANGE and abs(difference / max(error, 1e-12)) >= CERTAIN_ERRORS
    return f"{what} x{ratio:.2f}" if material else ""


#: Least change of a tempo or a cost: a move of two seconds that passes 5 % faster ends one
#: control tick earlier, less than that no skill can act on.
MATERIAL_CHANGE = 0.05
#: Least change of a tempo's median: what begins anew at any time, as stances do, passes more slowly now and then alone.
TYPICAL_CHANGE = 0.05
#: Least certainty, in standard errors: costs of blows are not normal, and there are some dozens of cues.
CERTAIN_ERRORS = 4.0
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
