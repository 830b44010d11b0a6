"""Which skills a shift asks to adapt, by their own decision problems and by what animations still announce.

Each exploring decision is a small randomised experiment (Boruvka et al. 2018, "Assessing time-varying
causal effect moderation in mobile health"): its action is drawn, so whatever upstream and the boss
do to every action alike cancels in the contrast between actions. The trained values predict that
contrast, as the advantage of the drawn action over the mean action. The slope of what followed on
that prediction (the best linear predictor of Chernozhukov et al. 2018, "Generic machine learning
inference on heterogeneous treatment effects") is the effect; how much of it is kept is the measure.

What upstream does may still decide how much an action can do: walking forward leads nowhere without a
lock. So both domains are weighted to equal contexts, all columns that the skill or one upstream of it
observes, by overlap weights (Li, Morgan & Zaslavsky 2018, "Balancing covariates via propensity score
weighting").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.combat.rollout import DecisionColumns, Doubles, Episodes, Flags, Integers
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

#: Columns that hold numbers of animations, whose order means nothing, and the columns of their progress.
_PROGRESS = {Column.BOSS_ANIMATION: Column.BOSS_PROGRESS, Column.PLAYER_ANIMATION: Column.PLAYER_PROGRESS}
#: Outcomes are collected over this many of the skill's longest decisions: one to act, one to see it.
_WINDOW_DECISIONS = 2
_RIDGE = 1.0
_LARGEST_DEVIATION = 4.0
_MOST_STEPS = 15


@dataclass(frozen=True)
class Experiments:
    """A skill's exploring decisions (m,) in one domain, in `seeds` episodes.

    `rows` (m, 25) they were taken in, `predicted` advantage of the drawn action, `value` of the greedy
    one, `outcomes` that followed, their `episodes`.
    """

    rows: StateRows
    predicted: Doubles
    value: Doubles
    outcomes: Doubles
    episodes: Integers
    seeds: int


@dataclass(frozen=True)
class Effect:
    """The slopes of outcome on prediction in both domains, the share kept, and how certain both are.

    `home_errors` is the home slope and `change_errors` the change in standard errors; episodes are
    the units, paired by seed.
    """

    home: float
    shifted: float
    home_errors: float
    change_errors: float

    @property
    def kept(self) -> float:
        """Return the shifted slope as a share of the home slope: 1 is no change."""
        return self.shifted / self.home if self.home else 1.0


#: Of a skill whose actions' effect was not estimated.
NO_EFFECT = Effect(0.0, 0.0, 0.0, 0.0)


def experiments(skill: Skill, network: FrozenNetwork, played: Episodes) -> Experiments:
    """Return the exploring decisions of a trial."""
    taken = played.taken
    drawn = taken.explored
    values = FusedNetworks([network]).q_values(0, taken.rows[drawn]).astype(np.float64)
    advantages = values - values.mean(axis=1, keepdims=True)
    return Experiments(
        rows=taken.rows[drawn],
        predicted=advantages[np.arange(len(advantages)), taken.actions[drawn]],
        value=values.max(axis=1),
        outcomes=outcomes(taken, _WINDOW_DECISIONS * skill.longest_ticks)[drawn],
        episodes=taken.episodes[drawn],
        seeds=len(played),
    )


def outcomes(taken: DecisionColumns, ticks: int) -> Doubles:
    """Return the rewards of the decisions begun within `ticks` of each decision, (m,)."""
    starts = np.cumsum(taken.ticks) - taken.ticks
    episode_ends = np.searchsorted(taken.episodes, taken.episodes, side="right")
    ends = np.minimum(np.searchsorted(starts, starts + ticks), episode_ends)
    sums = np.concatenate([[0.0], np.cumsum(taken.rewards)])
    return np.asarray(sums[ends] - sums[:-1])


def compare_effects(columns: Sequence[Column], home: Experiments, shifted: Experiments) -> Effect:
    """Estimate the effect in both domains, of equal seeds, at equal contexts; `columns` are the context."""
    compute_on_one_thread()
    features = _features(np.concatenate([home.rows, shifted.rows]), columns)
    first = len(home.rows)
    probability = _probability(features, np.arange(len(features)) >= first)
    weights = np.concatenate([probability[:first], 1.0 - probability[first:]])
    at_home, home_influences = _slope(home, features[:first], weights[:first])
    elsewhere, influences = _slope(shifted, features[first:], weights[first:])
    return Effect(
        home=at_home,
        shifted=elsewhere,
        home_errors=_in_errors(at_home, home_influences),
        change_errors=_in_errors(elsewhere - at_home, influences - home_influences),
    )


def _slope(tried: Experiments, features: Doubles, weights: Doubles) -> tuple[float, Doubles]:
    """Return the weighted slope of outcome on prediction, and each episode's influence on it (seeds,).

    The part of the outcomes that the context predicts is subtracted first: it is noise in the contrast.
    """
    context = np.column_stack([features, tried.value])
    weighted = context * weights[:, None]
    ridge = _RIDGE * np.eye(context.shape[1])
    level = context @ np.linalg.solve(weighted.T @ context + ridge, weighted.T @ tried.outcomes)
    products = weights * tried.predicted * (tried.outcomes - level)
    squares = weights * tried.predicted**2
    total = float(squares.sum())
    if total == 0.0:
        return 0.0, np.zeros(tried.seeds)
    slope = float(products.sum()) / total
    return slope, np.bincount(tried.episodes, products - slope * squares, tried.seeds) / total


def _in_errors(value: float, influences: Doubles) -> float:
    error = float(np.sqrt((influences**2).sum()))
    return value / error if error > 0.0 else 0.0


def _features(rows: StateRows, columns: Sequence[Column]) -> Doubles:
    """Return a constant, the columns in deviations, their squares, and indicators of animations, (n, features)."""
    plain = rows[:, [column for column in columns if column not in _PROGRESS]].astype(np.float64)
    deviation = plain.std(axis=0)
    varies = deviation > 1e-6
    scaled = (plain[:, varies] - plain[:, varies].mean(axis=0)) / deviation[varies]
    scaled = np.clip(scaled, -_LARGEST_DEVIATION, _LARGEST_DEVIATION)
    indicators = [
        (rows[:, column] == number)[:, None].astype(np.float64)
        for column in columns
        if column in _PROGRESS
        for number in np.unique(rows[:, column])[1:]
    ]
    return np.concatenate([np.ones((len(rows), 1)), scaled, scaled**2, *indicators], axis=1)


def _probability(features: Doubles, labels: Flags) -> Doubles:
    """Return the probability of the label by ridge logistic regression, Newton's method, (n,)."""
    weights = np.zeros(features.shape[1])
    ridge = _RIDGE * np.eye(len(weights))
    probability = np.full(len(features), 0.5)
    for _ in range(_MOST_STEPS):
        gradient = features.T @ (labels - probability) - _RIDGE * weights
        curvature = (features * (probability * (1.0 - probability))[:, None]).T @ features + ridge
        step = np.linalg.solve(curvature, gradient)
        weights += step
        probability = 1.0 / (1.0 + np.exp(-np.clip(features @ weights, -30.0, 30.0)))
        if np.abs(step).max() < 1e-4:
            break
    return probability


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


#: Least change of an effect, a tempo or a cost: a move of two seconds that passes 5 % faster ends one
#: control tick earlier, less than that no skill can act on.
MATERIAL_CHANGE = 0.05
#: Least change of a tempo's median: what begins anew at any time, as stances do, passes more slowly now and then alone.
TYPICAL_CHANGE = 0.05
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
class SkillVerdict:
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


def recommend(evidence: Mapping[str, Evidence]) -> dict[str, SkillVerdict]:
    """Evaluate every skill by itself."""
    return {skill: _verdict(skill, found) for skill, found in evidence.items()}


def _verdict(skill: str, found: Evidence) -> SkillVerdict:
    effect, changed = found.effect, [cue for cue in found.cues if cue.change]
    named = {cue.name: cue.change for cue in sorted(changed, key=lambda cue: -cue.share)}
    # Boss and player are seen together: the larger share is a lower bound of the decisions that see either.
    share = max(sum((cue.share for cue in changed if cue.column == column), 0.0) for column in _PROGRESS)
    clear = effect.home_errors >= CERTAIN_ERRORS
    other = clear and abs(effect.kept - 1.0) >= MATERIAL_CHANGE and abs(effect.change_errors) >= CERTAIN_ERRORS
    reasons = []
    if other:
        reasons.append(f"its actions do {100.0 * effect.kept:.0f} % of what they did at home")
    if share >= CHANGED_DECISIONS:
        listed = ", ".join(f"{name} {change}" for name, change in list(named.items())[:_NAMED_CUES])
        more = f" and {len(named) - _NAMED_CUES} more" if len(named) > _NAMED_CUES else ""
        reasons.append(f"in {100.0 * share:.0f} % of its decisions it sees changed animations: {listed}{more}")
    unclear = "" if clear else "; what its actions do is too unclear at home to tell a change"
    none = f"its actions do, and its inputs announce, what they did at home{unclear}"
    return SkillVerdict(skill, other, named, share, adapt=bool(reasons), reason="; ".join(reasons) or none)
