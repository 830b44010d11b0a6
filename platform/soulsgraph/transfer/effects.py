"""The effect of a skill's actions, and whether its values predict the returns that it then obtains.

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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.combat.episodes import DecisionColumns, Episodes
from soulsgraph_envs.core.state import Column, StateRows
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.fused_networks import FusedNetworks
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.inference import FrozenNetwork

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Columns that hold numbers of animations: their order means nothing.
ANIMATIONS = (Column.BOSS_ANIMATION, Column.PLAYER_ANIMATION)
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
    collected: Doubles = sums[ends] - sums[:-1]
    return collected


def compare_effects(columns: Sequence[Column], home: Experiments, shifted: Experiments) -> Effect:
    """Estimate the effect in both domains, of equal seeds, at equal contexts; `columns` are the context."""
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
    influence: Doubles = np.bincount(tried.episodes, products - slope * squares, tried.seeds) / total
    return slope, influence


def _in_errors(value: float, influences: Doubles) -> float:
    error = float(np.sqrt((influences**2).sum()))
    return value / error if error > 0.0 else 0.0


def _features(rows: StateRows, columns: Sequence[Column]) -> Doubles:
    """Return a constant, the columns in deviations, their squares, and indicators of animations, (n, features)."""
    plain = rows[:, [column for column in columns if column not in ANIMATIONS]].astype(np.float64)
    deviation = plain.std(axis=0)
    varies = deviation > 1e-6
    scaled = (plain[:, varies] - plain[:, varies].mean(axis=0)) / deviation[varies]
    scaled = np.clip(scaled, -_LARGEST_DEVIATION, _LARGEST_DEVIATION)
    indicators = [
        (rows[:, column] == number)[:, None].astype(np.float64)
        for column in columns
        if column in ANIMATIONS
        for number in np.unique(rows[:, column])[1:]
    ]
    return np.concatenate([np.ones((len(rows), 1)), scaled, scaled**2, *indicators], axis=1)


def _probability(features: Doubles, labels: npt.NDArray[np.bool_]) -> Doubles:
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


@dataclass(frozen=True)
class ValueCheck:
    """Predicted minus obtained discounted return: mean per episode (n,), and root mean square over all decisions."""

    biases: Doubles
    error: float

    @property
    def bias(self) -> float:
        """Mean over episodes: above 0 the values are too optimistic."""
        return float(self.biases.mean())


def check_values(network: FrozenNetwork, played: Episodes, numbers: DQNHyperparameters) -> ValueCheck:
    """Compare the largest Q-value at each decision with the discounted return from there on.

    After a truncation the rest is estimated by the largest Q-value at the end, as in training.
    """
    networks, taken = FusedNetworks([network]), played.taken
    promised = networks.q_values(0, taken.rows).max(axis=1).astype(np.float64)
    beyond = np.where(played.cut, networks.q_values(0, played.rows).max(axis=1), 0.0)
    discounts = numbers.discount ** (taken.ticks if numbers.semi_markov else np.ones(len(taken.ticks)))
    difference = promised - discounted_returns(taken.episodes, taken.rewards, discounts, beyond)
    totals = np.bincount(taken.episodes, difference, len(played))
    return ValueCheck(totals / np.maximum(played.lengths, 1), float(np.sqrt(np.mean(difference**2))))


@njit(cache=True)
def discounted_returns(episodes: Integers, rewards: Doubles, discounts: Doubles, beyond: Doubles) -> Doubles:
    """Return the discounted return from each decision (m,) to the end of its episode.

    Decisions are in order of episode and time; `beyond` (episodes,) is the value after an episode's end.
    """
    out = np.empty(len(rewards))
    for i in range(len(rewards) - 1, -1, -1):
        last = i == len(rewards) - 1 or episodes[i + 1] != episodes[i]
        following = beyond[episodes[i]] if last else out[i + 1]
        out[i] = rewards[i] + discounts[i] * following
    return out
