"""Which skills a shift asks to adapt, by their own decision problems and by what animations still announce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph.transfer.effects import Effect
from soulsgraph_envs.combat.episodes import DecisionColumns
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills import Skill

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


#: Least change of an effect, a tempo or a cost: a move of two seconds that passes 5 % faster ends one
#: control tick earlier, less than that no skill can act on.
MATERIAL_CHANGE = 0.05
#: Least certainty, in standard errors: a false alarm in a thousand for each of five effects and some dozens of cues.
CERTAIN_ERRORS = 3.3
#: Least share of the decisions at home that makes a cue known: training hardly ever saw a rarer one.
KNOWN_SHARE = 0.001
#: Least share of decisions with changed cues that is worth an adaptation budget.
CHANGED_DECISIONS = 0.1

_NAMED_CUES = 3


@dataclass(frozen=True)
class Evidence:
    """The input of the rule for one skill: its actions' effect and its cues, home and shifted."""

    effect: Effect
    cues: tuple[Cue, ...]


@dataclass(frozen=True)
class Verdict:
    """The result of the rule for one skill.

    `effect_changed` is whether its actions' effect changed; `changed_cues` the kind of change of each changed
    cue by name, the most frequent first, and `changed_decisions` the share of decisions that see one.
    """

    skill: str
    effect_changed: bool
    changed_cues: Mapping[str, str]
    changed_decisions: float
    adapt: bool
    reason: str


def recommend(evidence: Mapping[str, Evidence]) -> dict[str, Verdict]:
    """Evaluate every skill by itself."""
    return {skill: _judge(skill, found) for skill, found in evidence.items()}


def _judge(skill: str, found: Evidence) -> Verdict:
    effect = found.effect
    changed = changed_cues(found.cues, Threshold(MATERIAL_CHANGE, CERTAIN_ERRORS, KNOWN_SHARE))
    named = {cue.name: change for cue, change in sorted(changed, key=lambda item: -item[0].share)}
    share = changed_decisions(cue for cue, _ in changed)
    clear = effect.home_errors >= CERTAIN_ERRORS
    other = clear and abs(effect.kept - 1.0) >= MATERIAL_CHANGE and abs(effect.change_errors) >= CERTAIN_ERRORS
    reasons = []
    if other:
        reasons.append(f"its actions do {effect.kept:.0%} of what they did at home")
    if share >= CHANGED_DECISIONS:
        listed = ", ".join(f"{name} {change}" for name, change in list(named.items())[:_NAMED_CUES])
        more = f" and {len(named) - _NAMED_CUES} more" if len(named) > _NAMED_CUES else ""
        reasons.append(f"in {share:.0%} of its decisions it sees changed animations: {listed}{more}")
    unclear = "" if clear else "; what its actions do is too unclear at home to tell a change"
    none = f"its actions do, and its inputs announce, what they did at home{unclear}"
    return Verdict(skill, other, named, share, adapt=bool(reasons), reason="; ".join(reasons) or none)
