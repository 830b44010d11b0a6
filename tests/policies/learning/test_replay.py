"""The replay buffer: what is kept, what is drawn, and what is learned from it."""

from typing import Any

import numpy as np
from hypothesis import given
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
    normalizer.update(transitions.observations)
    batch = buffer.sample(300, np.random.default_rng(1), normalizer)
    raw = np.stack([batch.rewards, -batch.rewards], axis=1)
    np.testing.assert_allclose(
        batch.observations, np.clip((raw - normalizer.mean) / normalizer.deviation, -1.2, 1.2), atol=1e-6
    )
    assert abs(batch.observations).max() == np.float32(1.2)


def _chain(rewards: list[float], ends: dict[int, bool], lanes: int = 1) -> Transitions:
    """Decisions of lanes in turn that observe their count; an end is a termination or a truncation."""
    count = len(rewards)
    lane = np.arange(count) % lanes
    episodes = np.zeros(count, np.int64)
    for end in ends:
        episodes[(np.arange(count) > end) & (lane == end % lanes)] += 1
    numbers = np.arange(count, dtype=np.float32)
    return Transitions(
        observations=np.stack([numbers, lane], axis=1).astype(np.float32),
        next_observations=np.stack([numbers + lanes, lane], axis=1).astype(np.float32),
        actions=np.arange(count),
        rewards=np.array(rewards, np.float32),
        terminated=np.array([ends.get(i, False) for i in range(count)]),
        ticks=np.arange(count) + 1,
        lanes=lane,
        episodes=episodes,
    )


def _part(chain: Transitions, rows: Any) -> Transitions:
    return Transitions(*(values[rows] for values in vars(chain).values()))


def _drawn(buffer: ReplayBuffer) -> dict[int, tuple[float, float, float]]:
    """Return what is learned from each decision: return, discount, and the decision that it bootstraps from."""
    batch = _sampled(buffer, 400)
    columns = (batch.actions, batch.rewards, batch.discounts, batch.next_observations[:, 0])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {int(action): (reward, discount, following) for action, reward, discount, following in rows}


def test_n_step_returns_end_with_the_episode_and_bootstrap_where_it_was_truncated() -> None:
    buffer = _buffer(16, n_step=3, gamma=0.5)
    # Decision 3 terminates its episode, decision 5 is the last before a horizon, 6 and 7 lie in a third.
    buffer.add(_chain([1, 2, 4, 8, 16, 32, 64, 128], {3: True, 5: False}))
    assert _drawn(buffer) == {
        0: (1 + 2 / 2 + 4 / 4, 0.125, 3),
        1: (2 + 4 / 2 + 8 / 4, 0.0, 4),
        2: (4 + 8 / 2, 0.0, 4),
        3: (8, 0.0, 4),
        4: (16 + 32 / 2, 0.25, 6),
        5: (32, 0.5, 6),
        6: (64 + 128 / 2, 0.25, 8),
        7: (128, 0.5, 8),
    }


def test_n_step_returns_follow_each_lane_by_itself_whatever_the_chunks() -> None:
    whole, parts = (_buffer(12, n_step=2, gamma=0.5) for _ in range(2))
    chain = _chain([float(2**i) for i in range(12)], {4: True}, lanes=2)
    whole.add(chain)
    for i in range(0, 12, 3):
        parts.add(_part(chain, slice(i, i + 3)))
    assert _drawn(whole) == _drawn(parts)
    assert _drawn(whole)[0] == (1 + 4 / 2, 0.25, 4)
    assert _drawn(whole)[1] == (2 + 8 / 2, 0.25, 5)
    assert _drawn(whole)[4] == (16, 0.0, 6)
    assert _drawn(whole)[11] == (2048, 0.5, 13)


def test_n_step_returns_never_bridge_a_lost_transition_or_an_overwritten_one() -> None:
    buffer = _buffer(4, n_step=3, gamma=0.5)
    chain = _chain([1, 2, 4, 8, 16, 32], {})
    buffer.add(_part(chain, [0, 1, 3, 4]))  # 2 was lost on its way.
    assert _drawn(buffer)[1] == (2, 0.5, 2)
    assert _drawn(buffer)[3] == (8 + 16 / 2, 0.25, 5)
    buffer.add(_part(chain, [5]))  # Over decision 0.
    assert _drawn(buffer)[3] == (8 + 16 / 2 + 32 / 4, 0.125, 6)
    assert 0 not in _drawn(buffer)


def test_semi_markov_discount_is_that_of_the_ticks_a_return_spans() -> None:
    # Sutton, Precup & Singh 1999: a decision of k ticks discounts what follows by gamma ** k.
    one, two = (_buffer(8, n_step=n, semi_markov=True, gamma=0.5) for n in (1, 2))
    for buffer in (one, two):
        buffer.add(_chain([1, 8, 32], {2: True}))  # Of 1, 2 and 3 ticks.
    assert _drawn(one) == {0: (1, 0.5, 1), 1: (8, 0.25, 2), 2: (32, 0.0, 3)}
    assert _drawn(two) == {0: (1 + 8 / 2, 0.125, 2), 1: (8 + 32 / 4, 0.0, 3), 2: (32, 0.0, 3)}


def test_prioritised_draws_follow_the_newest_errors_and_their_weights_undo_the_bias() -> None:
    buffer = _buffer(4, alpha=1.0, beta=0.5)
    buffer.add(_chain([0, 1, 2, 3], {}))
    actions = _sampled(buffer, 64).actions
    buffer.learned(np.array([1.0, 1.0, 2.0, 4.0], np.float32)[actions])
    batch = _sampled(buffer, 40_000, 1)
    shares = np.bincount(batch.actions, minlength=4) / len(batch.actions)
    np.testing.assert_allclose(shares, [1 / 8, 1 / 8, 2 / 8, 4 / 8], atol=0.01)
    np.testing.assert_allclose(batch.weights, np.array([1, 1, 1 / 2, 1 / 4])[batch.actions] ** 0.5, rtol=1e-4)
