"""Batches by source: how many rows each source gets, which of its rows, and that a restored draw goes on exactly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.stages import assert_same, drawn_transitions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.draws import BatchShares
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import Batch, ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions

CAPACITY = 40

#: Chunks of a source each: the source's number and its count of rows.
chunks = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2 * CAPACITY)), min_size=1, max_size=15)
parts = st.lists(st.integers(0, 100), min_size=4, max_size=4).filter(any)


def _filled(played: list[tuple[int, int]], shares: list[float]) -> tuple[BatchShares, np.ndarray, int]:
    """Return draws of a buffer that chunks were written to, each row's source (-1 for none), and the rows written."""
    found, sources, written = BatchShares(CAPACITY, np.array(shares)), np.full(CAPACITY, -1), 0
    for source, count in played:
        rows = (written + np.arange(count)) % CAPACITY
        found.add(rows, source)
        sources[rows] = source
        written += count
    return found, sources, written


@given(played=chunks, parts=parts, batch_size=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_every_batch_holds_each_sources_share_to_one_row(
    played: list[tuple[int, int]], parts: list[int], batch_size: int, seed: int
) -> None:
    shares = np.array(parts) / sum(parts)
    found, sources, _ = _filled(played, list(shares))
    rows = found.draw(6 * batch_size, batch_size, np.random.default_rng(seed))
    assert (sources[rows] >= 0).all()
    there = np.bincount(sources[sources >= 0], minlength=4)
    # What a source without rows lacks goes to the others in proportion.
    expected = np.where(there > 0, shares, 0.0)
    expected = (expected if expected.any() else there) / (expected.sum() or there.sum())
    for batch in rows.reshape(6, batch_size):
        counts = np.bincount(sources[batch], minlength=4)
        assert counts.sum() == batch_size
        assert (counts >= np.floor(expected * batch_size - 1e-6)).all()
        assert (counts <= np.ceil(expected * batch_size + 1e-6)).all()


@given(played=chunks, more=chunks, parts=parts, seed=st.integers(0, 2**32 - 1))
def test_restored_draws_go_on_with_the_same_rows(
    played: list[tuple[int, int]], more: list[tuple[int, int]], parts: list[int], seed: int
) -> None:
    found, _, written = _filled(played, list(np.array(parts) / sum(parts)))
    again = BatchShares.restored(CAPACITY, found.get_state(), written % min(written, CAPACITY))
    for source, count in more:
        rows = (written + np.arange(count)) % CAPACITY
        written += count
        drawn = []
        for one in (found, again):
            one.add(rows, source)
            drawn.append(one.draw(64, 16, np.random.default_rng(seed)))
        np.testing.assert_array_equal(*drawn)


def test_a_share_is_exact_on_average_and_rows_of_a_source_are_drawn_alike() -> None:
    # A share of 0.3 of 16 rows is 4 or 5 of them, 4.8 on average. Over 20,000 batches of a fixed seed the mean's
    # deviation is 0.4 / sqrt(20,000) = 0.0028: one seed in 16,000 misses by more than 4 of them. Each of the 30 rows
    # of source 1 is drawn 3,200 times, with a deviation of at most 57: one seed in 900,000 misses by more than 5.5.
    found, sources, _ = _filled([(0, 10), (1, 30)], [0.7, 0.3, 0.0, 0.0])
    rows = found.draw(20_000 * 16, 16, np.random.default_rng(5))
    counts = (sources[rows] == 1).reshape(-1, 16).sum(axis=1)
    assert set(counts) == {4, 5}
    assert abs(counts.mean() - 4.8) < 4 * 0.0028
    times = np.bincount(rows[sources[rows] == 1], minlength=CAPACITY)[10:]
    assert abs(times - 3_200).max() < 5.5 * 57


def _buffer(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(DQNHyperparameters(budget=100, capacity=CAPACITY, train_batch_size_per_learner=8, **options), 1)


def _shared(**options: Any) -> ReplayBuffer:
    """Return a buffer that has 30 transitions of rewards 0 and 4 of rewards 1, the second one's share being 0.75."""
    buffer = _buffer(**options)
    buffer.share_batches(np.array([0.25, 0.75]))
    buffer.add(_decisions(30, 0.0, 0), 0)
    buffer.add(_decisions(4, 1.0, 1), 1)
    return buffer


def _decisions(count: int, reward: float, lane: int) -> Transitions:
    steps = np.arange(count)[:, None]
    return drawn_transitions(
        count, size=1, observations=steps, next_observations=steps + 1, rewards=reward, terminated=False, lanes=lane
    )


def _sampled(buffer: ReplayBuffer, count: int, seed: int = 0) -> Batch:
    return buffer.sample(count, np.random.default_rng(seed), RunningNormalizer(1))


def test_a_replay_draws_its_batches_by_source() -> None:
    batch = _sampled(_shared(), 80)
    np.testing.assert_array_equal(batch.rewards.reshape(10, 8).sum(axis=1), 6)
    np.testing.assert_array_equal(batch.weights, 1.0)


def test_returns_of_several_decisions_follow_their_own_source() -> None:
    batch = _sampled(_shared(n_step=3, gamma=0.5), 80)
    # The last decisions of what came have no followers.
    assert set(batch.rewards) == {0.0, 1.0, 1.5, 1.75}
    np.testing.assert_array_equal((batch.rewards.reshape(10, 8) > 0).sum(axis=1), 6)


def test_a_restored_replay_draws_the_same() -> None:
    buffer, other = _shared(n_step=3), _buffer(n_step=3)
    other.set_state(buffer.get_state())
    for each in (buffer, other):
        each.add(_decisions(20, 2.0, 2), 1)
    assert_same(vars(_sampled(buffer, 64)), vars(_sampled(other, 64)))


def test_decisions_that_were_shown_are_drawn_as_often_as_without_shares() -> None:
    buffer = _shared(margin=0.5)
    buffer.show(_decisions(34, 5.0, 0))
    rewards = _sampled(buffer, 8_000, 1).rewards
    # Half of 8,000, with a deviation of 45; of the others three quarters, with a deviation of at most 39. The seed is
    # fixed: one in 850,000 misses one of them by more than 5.
    shown = (rewards == 5.0).sum()
    assert abs(shown - 4_000) < 5 * 45
    assert abs((rewards == 1.0).sum() - 0.75 * (8_000 - shown)) < 5 * 39


def test_without_shares_a_source_changes_nothing() -> None:
    plain, named = _buffer(), _buffer()
    plain.add(_decisions(30, 0.0, 0))
    named.add(_decisions(30, 0.0, 0), 3)
    assert_same(vars(_sampled(plain, 64)), vars(_sampled(named, 64)))
    np.testing.assert_equal(plain.get_state(), named.get_state())


def test_draws_by_priority_are_refused_by_name() -> None:
    with pytest.raises(SoulsGraphError, match="alpha"):
        _buffer(alpha=0.6).share_batches(np.ones(1))
