"""Networks that choose as somebody else did, and replays that draw what was shown."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fakes.stages import assert_same, drawn_transitions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.learning import cloning
from soulsgraph_policies.learning.cloning import clone, share_alike
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

SKILL = make_skill("lock_on")
NUMBERS = DQNHyperparameters(budget=300, capacity=100, margin=0.8)


def transitions(count: int, rewards: float | None = None) -> Transitions:
    """Decisions of somebody who toggles the lock wherever the angle, the first value, is above 1."""
    drawn = drawn_transitions(count, size=SKILL.observation.size, terminated=False, ticks=1)
    moved = replace(drawn, observations=drawn.observations + 1.0, next_observations=drawn.next_observations + 1.0)
    shown = replace(moved, actions=np.where(moved.observations[:, 0] > 1.0, 0, 1), rewards=2.0 * moved.rewards)
    return shown if rewards is None else replace(shown, rewards=np.full(count, rewards, np.float32))


def test_a_clone_chooses_as_was_shown_also_where_nothing_was_shown(monkeypatch):
    monkeypatch.setattr(cloning, "UPDATES", 400)
    numbers = replace(NUMBERS, train_batch_size_per_learner=128, double_q=True)
    found = clone(SKILL, shown := transitions(2_000), numbers, seed=0)
    assert found.same > 0.95
    assert share_alike(SKILL, found.weights, shown, numbers) == found.same
    network = FrozenNetwork.of(SKILL, load_scenario("iudex-phase1"), found.weights, NUMBERS.observation_clip)
    angles = np.array([-1.0, 0.0, 0.5, 1.5, 2.0, 3.0], np.float32)
    rows = np.zeros((6, 25), np.float32)
    rows[:, network.observation.columns[0]], rows[:, network.observation.columns[1]] = angles, 1.0
    chosen = FusedNetworks([network]).q_values(0, rows).argmax(axis=1)
    np.testing.assert_array_equal(chosen, np.where(angles > 1.0, 0, 1))


def test_the_same_seed_makes_the_same_clone_on_one_thread_and_every_update_is_reported(monkeypatch):
    monkeypatch.setattr(cloning, "UPDATES", 260)  # Past a copy into the target network.
    torch.set_num_threads(2)
    updates = []
    numbers, shown = replace(NUMBERS, train_batch_size_per_learner=16), transitions(300)
    one = clone(SKILL, shown, numbers, seed=3, on_update=lambda: updates.append(torch.get_num_threads()))
    assert_same(one.weights, clone(SKILL, shown, numbers, seed=3).weights)
    assert updates == [1] * 260


def test_nothing_to_clone_is_refused():
    with pytest.raises(SoulsGraphError, match="lock_on"):
        clone(SKILL, transitions(0), NUMBERS, seed=0)
