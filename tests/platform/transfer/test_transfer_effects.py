"""The effect of a skill's own actions: contrasts of drawn actions, at equal contexts, apart from upstream effects."""

import numpy as np
import pytest

from soulsgraph.transfer.rule import Evidence, Experiments, compare_effects, outcomes, recommend
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.state import STATE_SIZE, Column

EPISODES, DECISIONS = 100, 40
CONTEXT = [Column.DISTANCE, Column.LOCKED]


def tried(effect=1.0, level=0.0, locked=0.5, by_lock=0.0, seed=0) -> Experiments:
    """Draw decisions whose outcome is a level, the effect of the action (larger under a lock), and noise."""
    random = np.random.default_rng(seed)
    count = EPISODES * DECISIONS
    rows = np.zeros((count, STATE_SIZE), np.float32)
    rows[:, Column.DISTANCE] = random.uniform(1.0, 10.0, count)
    rows[:, Column.LOCKED] = random.random(count) < locked
    predicted = random.choice([-0.5, 0.5], count)
    slope = effect * (1.0 + by_lock * rows[:, Column.LOCKED])
    outcome = level * rows[:, Column.DISTANCE] + slope * predicted + random.normal(0.0, 0.3, count)
    return Experiments(rows, predicted, np.zeros(count), outcome.astype(float), np.arange(count) // DECISIONS, EPISODES)


def named(effect) -> bool:
    return recommend({"skill": Evidence(effect, ())})["skill"].adapt


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 3.0])
def test_the_share_kept_is_the_factor_of_the_effect(factor):
    effect = compare_effects(CONTEXT, tried(), tried(effect=factor, seed=1))
    assert effect.home == pytest.approx(1.0, abs=0.05)
    assert effect.kept == pytest.approx(factor, abs=0.1)
    assert named(effect) == (factor != 1.0)


def test_an_effect_that_hangs_on_what_upstream_does_is_compared_at_equal_contexts():
    home, shifted = tried(locked=0.9, by_lock=3.0), tried(locked=0.2, by_lock=3.0, seed=1)
    assert named(compare_effects([Column.DISTANCE], home, shifted)), "without the lock in the context it looks changed"
    assert not named(compare_effects(CONTEXT, home, shifted))


def test_outcomes_are_the_rewards_within_the_window_and_the_episode():
    count = 5
    taken = DecisionColumns(
        episodes=np.array([0, 0, 0, 1, 1]),
        rows=np.zeros((count, STATE_SIZE), np.float32),
        actions=np.zeros(count, int),
        rewards=np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
        ticks=np.array([1, 5, 1, 1, 1]),
        explored=np.ones(count, bool),
    )
    assert outcomes(taken, 2).tolist() == [3.0, 2.0, 4.0, 24.0, 16.0]
    assert outcomes(taken, 6).tolist() == [3.0, 6.0, 4.0, 24.0, 16.0]
