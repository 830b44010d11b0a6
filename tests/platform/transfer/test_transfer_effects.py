"""The effect of a skill's own actions: contrasts of drawn actions, at equal contexts, apart from upstream effects."""

from dataclasses import replace

import numpy as np
import pytest

from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph.transfer.report import play_trial
from soulsgraph.transfer.rule import (
    CERTAIN_ERRORS,
    Evidence,
    Experiments,
    compare_effects,
    experiments,
    outcomes,
    recommend,
)
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork

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


def lock_agent(scenario, stand_in) -> Agent:
    """An agent whose hand-made network locks on when the boss is in view; the fight begins far off, facing the boss."""
    camera, lock_on = make_skill("camera"), replace(make_skill("lock_on"), horizon=20)
    # Q(toggle) = 1 - angle - 2 locked, Q(idle) = 0, of the raw (angle, locked).
    layer = {"q_network.0.weight": np.array([[-1.0, -2.0], [0.0, 0.0]]), "q_network.0.bias": np.array([1.0, 0.0])}
    weights = layer | {"observation_mean": np.zeros(2), "observation_deviation": np.ones(2)}
    network = FrozenNetwork.of(lock_on, scenario, weights, 10.0)
    ground = replace(training_scenario(scenario, lock_on), start="long")
    return Agent(ground, (camera, lock_on), {"lock_on": network}, {"camera": stand_in})


def lock_effect(path, player: str, stand_in: str):
    (path / "player.toml").write_text(f'based_on = "knight"\nname = "Knight, shifted"\n{player}')
    values = f'based_on = "iudex-phase1"\nname = "shifted"\nplayer = "{path / "player.toml"}"\n'
    (path / "shifted.toml").write_text(values)
    tries = []
    for scenario in (load_scenario("iudex-phase1"), load_scenario(path / "shifted.toml")):
        agent = lock_agent(scenario, stand_in)
        played = play_trial(agent, evaluation_seeds(3, 60), exploration=0.5)
        tries.append(experiments(agent.skills[-1], agent.networks["lock_on"], played))
    context = [*make_skill("camera").observation.columns, Column.LOCKED]
    return compare_effects(context, *tries)


def test_a_shorter_lock_changes_what_a_toggle_does_and_a_slower_camera_does_not(tmp_path):
    shorter = lock_effect(tmp_path, "[camera]\nlock_range_m = 6.0\nlock_break_m = 7.0\n", "idle")
    assert shorter.kept < 0.9
    assert named(shorter)
    slower = lock_effect(tmp_path, "[scaled.camera]\nyaw_rad_s = 0.6\npitch_rad_s = 0.6\n", "random")
    assert slower.home_errors > CERTAIN_ERRORS
    assert 0.0 < abs(slower.kept - 1.0) < 0.05, "it is another fight, with the same toggle"
    assert not named(slower)
