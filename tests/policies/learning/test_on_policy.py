"""Learning without a replay: lambda returns by hand, every decision once an epoch, resumable to the bit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fakes.stages import assert_same
from soulsgraph_envs.core.errors import DataError
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters, check_memory
from soulsgraph_policies.learning.replay import RecentDecisions
from soulsgraph_policies.learning.sampler import Transitions


def _numbers(**options: Any) -> DQNHyperparameters:
    given = {"num_steps": 4, "batch_size": 2, "update_epochs": 1, "td_lambda": 0.5, "gamma": 0.9} | options
    return DQNHyperparameters(budget=1_000, buffer_size=10, **given)


def _transitions(**columns: Any) -> Transitions:
    """Return decisions of one lane whose observations count up, each ending where the next begins."""
    count = len(columns["rewards"])
    steps = np.arange(count, dtype=np.float32)[:, None]
    columns = {
        "observations": steps,
        "next_observations": steps + 1.0,
        "actions": np.arange(count),
        "terminated": np.zeros(count, np.bool_),
        "ticks": np.ones(count, np.int64),
        "lanes": np.zeros(count, np.int64),
        "episodes": np.zeros(count, np.int64),
    } | columns
    return Transitions(**columns | {"rewards": np.asarray(columns["rewards"], np.float32)})


def _network() -> nn.Module:
    """Value the single column times ten by the better of two actions."""
    network = nn.Linear(1, 2, bias=False)
    network.weight.data = torch.tensor([[10.0], [-5.0]])
    return network


def _sampled(transitions: Transitions, numbers: DQNHyperparameters, count: int = 4) -> dict[int, float]:
    """Return the returns of one epoch over all transitions, by action."""
    recent = RecentDecisions(numbers, _network())
    recent.add(transitions)
    normalizer = RunningNormalizer(1, np.array([True]))
    batch = recent.sample(count, np.random.default_rng(0), normalizer)
    assert not batch.discounts.any()
    return dict(zip(batch.actions.tolist(), batch.rewards.tolist(), strict=True))


def test_a_return_blends_the_values_of_every_later_state_by_its_trace() -> None:
    # Values of the states after: 10, 20, 30, 40. From the last: 4 + 0.9 * 40; then r + 0.9 * (0.5 * V + 0.5 * next).
    last = 4.0 + 0.9 * 40.0
    third = 3.0 + 0.9 * (0.5 * 30.0 + 0.5 * last)
    second = 2.0 + 0.9 * (0.5 * 20.0 + 0.5 * third)
    first = 1.0 + 0.9 * (0.5 * 10.0 + 0.5 * second)
    rewards = [1.0, 2.0, 3.0, 4.0]
    returns = _sampled(_transitions(rewards=rewards), _numbers())
    assert returns == pytest.approx({0: first, 1: second, 2: third, 3: last})
    # Without a trace it looks one decision ahead, with a full one to the end.
    one_ahead = _sampled(_transitions(rewards=rewards), _numbers(td_lambda=0.0))
    assert one_ahead == pytest.approx({i: i + 1 + 0.9 * 10.0 * (i + 1) for i in range(4)})
    whole = _sampled(_transitions(rewards=rewards), _numbers(td_lambda=1.0))
    assert whole[0] == pytest.approx(1.0 + 0.9 * 2.0 + 0.81 * 3.0 + 0.729 * (4.0 + 0.9 * 40.0))


@pytest.mark.parametrize(
    "cut",
    [
        {"episodes": np.array([0, 0, 1, 1])},
        {"lanes": np.array([0, 0, 1, 1])},
        {"next_observations": np.array([[1.0], [7.0], [3.0], [4.0]], np.float32)},
    ],
    ids=["another episode", "another lane", "a decision lost"],
)
def test_no_return_crosses_from_one_episode_or_lane_to_another(cut: dict[str, Any]) -> None:
    transitions = _transitions(rewards=[1.0, 2.0, 3.0, 4.0], **cut)
    value = 10.0 * float(transitions.next_observations[1, 0])
    assert _sampled(transitions, _numbers())[1] == pytest.approx(2.0 + 0.9 * min(value, 100.0))


def test_where_an_episode_terminated_a_return_is_its_reward_and_ticks_discount() -> None:
    terminated = np.array([False, True, False, False])
    episodes = np.array([0, 0, 1, 1])
    ticks = np.array([3, 1, 1, 2])
    transitions = _transitions(rewards=[1.0, 2.0, 3.0, 4.0], terminated=terminated, episodes=episodes, ticks=ticks)
    returns = _sampled(transitions, _numbers(semi_markov=True))
    assert returns[1] == pytest.approx(2.0)
    assert returns[0] == pytest.approx(1.0 + 0.9**3 * (0.5 * 10.0 + 0.5 * 2.0))
    assert returns[3] == pytest.approx(4.0 + 0.9**2 * 40.0)


def test_every_epoch_learns_from_a_decision_at_most_once_and_then_it_is_forgotten() -> None:
    numbers = _numbers(num_steps=32, batch_size=8, update_epochs=3)
    recent, generator = RecentDecisions(numbers, _network()), np.random.default_rng(1)
    for first in (0, 20):
        recent.add(_transitions(rewards=np.ones(20), actions=np.arange(first, first + 20)))
    batch = recent.sample(96, generator, RunningNormalizer(1))
    epochs = batch.actions.reshape(3, 32)
    assert [sorted(epoch) for epoch in epochs] == [[*range(32)]] * 3, "whole rollouts, the surplus not"
    assert [*epochs[0]] != [*epochs[1]]
    kept = recent.get_state()["recent"]["actions"]
    np.testing.assert_array_equal(kept, np.arange(32, 40))
    recent.add(_transitions(rewards=np.ones(24), actions=np.arange(40, 64)))
    assert set(recent.sample(96, generator, RunningNormalizer(1)).actions) == {*range(32, 64)}
    assert recent.get_state() == {"recent": {}}


def test_the_state_continues_to_the_bit() -> None:
    numbers = _numbers()
    recent, again = RecentDecisions(numbers, _network()), RecentDecisions(numbers, _network())
    for part in ([1.0, 2.0], [3.0, 4.0]):
        recent.add(_transitions(rewards=part))
    again.set_state(recent.get_state())
    before, after = (vars(one.sample(4, np.random.default_rng(2), RunningNormalizer(1))) for one in (recent, again))
    assert_same(before, after)


def test_updates_are_owed_by_whole_rollouts() -> None:
    numbers = _numbers(num_steps=256, batch_size=64, update_epochs=8)
    assert [numbers.updates_owed(count, 0) for count in (255, 256, 511, 512)] == [0, 32, 32, 64]
    assert numbers.updates_owed(512, 32) == 32
    assert numbers.target_copy(0, 10**6) is None


def test_a_rollout_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(DataError, match="dodge"):
        check_memory({"dodge": _numbers(num_steps=10**7, update_epochs=1_000).replay_bytes(observation_size=25)})
