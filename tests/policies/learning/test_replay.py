"""The replay buffer: what is kept, what is drawn, and what is learned from it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import Batch, ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions


def _numbered(first: int, count: int) -> Transitions:
    """Transitions that carry their own number in every field."""
    numbers = np.arange(first, first + count)
    observations = np.stack([numbers, -numbers], axis=1).astype(np.float32)
    return Transitions(
        observations=observations,
        next_observations=observations + 0.5,
        actions=numbers % 7,
        rewards=numbers.astype(np.float32),
        terminated=numbers % 2 == 0,
        ticks=1 + numbers % 5,
        lanes=numbers % 3,
        episodes=numbers // 30,
    )


def _buffer(capacity: int, size: int = 2, **options: Any) -> ReplayBuffer:
    numbers = DQNHyperparameters(budget=100, capacity=capacity, **{"observation_clip": 1e6, **options})
    return ReplayBuffer(numbers, size)


def _sampled(buffer: ReplayBuffer, count: int, seed: int = 0) -> Batch:
    return buffer.sample(count, np.random.default_rng(seed), RunningNormalizer(2))


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_buffer_keeps_the_latest_and_every_row_whole(counts: list[int]) -> None:
    buffer, total = _buffer(25), 0
    for count in counts:
        buffer.add(_numbered(total, count))
        total += count
    batch = _sampled(buffer, 500)
    numbers = batch.rewards.astype(int)
    assert buffer.size == min(total, 25)
    assert numbers.min() >= total - buffer.size
    assert numbers.max() < total
    np.testing.assert_array_equal(batch.actions, numbers % 7)
    np.testing.assert_array_equal(batch.discounts, np.where(numbers % 2 == 0, 0.0, np.float32(0.99)))
    np.testing.assert_array_equal(batch.weights, 1.0)
    assert not batch.margins.any()
    np.testing.assert_allclose(batch.observations[:, 0], numbers, rtol=1e-6)
    np.testing.assert_allclose(batch.next_observations[:, 1], 0.5 - numbers, rtol=1e-6)


def test_observations_are_normalised_by_todays_statistics_and_clipped() -> None:
    buffer, normalizer, transitions = _buffer(64, observation_clip=1.2), RunningNormalizer(2), _numbered(0, 64)
    buffer.add(transitions)
    normalizer.update(transitions.observations * np.float32([1.0, 3.0]))
    batch = buffer.sample(300, np.random.default_rng(1), normalizer)
    raw = np.stack([batch.rewards, -batch.rewards], axis=1)
    np.testing.assert_allclose(
        batch.observations, np.clip((raw - normalizer.mean) / normalizer.deviation, -1.2, 1.2), atol=1e-6
    )
    assert abs(batch.observations).max() == np.float32(1.2)


def _chain(count: int, lanes: int = 1, ends: Mapping[int, bool] = MappingProxyType({})) -> Transitions:
    """Decisions of lanes in turn that observe their number; an end is a termination or a truncation."""
    numbers = np.arange(count)
    lane, episodes = numbers % lanes, np.zeros(count, np.int64)
    for end in ends:
        episodes[(numbers > end) & (lane == end % lanes)] += 1
    return Transitions(
        observations=np.stack([numbers, lane], axis=1).astype(np.float32),
        next_observations=np.stack([numbers + lanes, lane], axis=1).astype(np.float32),
        actions=numbers,
        rewards=np.array([7 * number % 32 for number in numbers], np.float32),
        terminated=np.array([ends.get(number, False) for number in range(count)]),
        ticks=1 + numbers % 3,
        lanes=lane,
        episodes=episodes,
    )


@settings(max_examples=60)
@given(
    n_step=st.integers(1, 4),
    semi_markov=st.booleans(),
    lanes=st.integers(1, 3),
    ends=st.dictionaries(st.integers(0, 17), st.booleans(), max_size=4),
    lost=st.sets(st.integers(0, 17), max_size=3),
    size=st.integers(1, 18),
)
def test_returns_end_with_their_episode_or_a_lost_transition_and_discount_by_ticks_where_that_is_asked_for(
    n_step: int, semi_markov: bool, lanes: int, ends: dict[int, bool], lost: set[int], size: int
) -> None:
    buffer, chain = _buffer(12, n_step=n_step, semi_markov=semi_markov, gamma=0.5), _chain(18, lanes, ends)
    added = [number for number in range(18) if number not in lost]
    for begin in range(0, len(added), size):
        buffer.add(Transitions(*(values[added[begin : begin + size]] for values in vars(chain).values())))
    expected = {}
    for first in added[-12:]:
        total, discount, last = 0.0, 1.0, first
        for step in range(n_step):
            following = last + lanes
            goes_on = following in added and chain.episodes[following] == chain.episodes[last]
            total += discount * chain.rewards[last]
            # Sutton, Precup & Singh 1999: a decision of k ticks discounts what follows by gamma ** k.
            discount *= 0.5 ** (chain.ticks[last] if semi_markov else 1)
            if chain.terminated[last]:
                discount = 0.0
            if discount == 0.0 or step == n_step - 1 or not goes_on:
                break
            last = following
        expected[first] = (total, discount, last + lanes)
    batch = _sampled(buffer, 600)
    columns = (batch.actions, batch.rewards, batch.discounts, batch.next_observations[:, 0])
    drawn = zip(*(column.tolist() for column in columns), strict=True)
    assert {int(action): rest for action, *rest in drawn} == {first: [*one] for first, one in expected.items()}


def test_prioritised_draws_follow_the_newest_errors_and_their_weights_undo_the_bias() -> None:
    buffer = _buffer(4, alpha=1.0, beta=0.5)
    buffer.add(_chain(4))
    actions = _sampled(buffer, 64).actions
    buffer.learned(np.array([1.0, 1.0, 2.0, 4.0], np.float32)[actions])
    batch = _sampled(buffer, 40_000, 1)
    shares = np.bincount(batch.actions, minlength=4) / len(batch.actions)
    np.testing.assert_allclose(shares, [1 / 8, 1 / 8, 2 / 8, 4 / 8], atol=0.01)
    np.testing.assert_allclose(batch.weights, np.array([1, 1, 1 / 2, 1 / 4])[batch.actions] ** 0.5, rtol=1e-4)
