"""The replay ring: what is kept, what is drawn, and that it continues exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.replay import ReplayRing
from soulsgraph_policies.transitions import Transitions


def _numbered(first: int, count: int) -> Transitions:
    """Transitions that carry their own number in every field."""
    numbers = np.arange(first, first + count)
    observations = np.stack([numbers, -numbers], axis=1).astype(np.float32)
    return Transitions(observations, observations + 0.5, numbers % 7, numbers.astype(np.float32), numbers % 2 == 0)


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_ring_keeps_the_latest_and_every_row_whole(counts: list[int]) -> None:
    ring, total = ReplayRing(25, 2), 0
    for count in counts:
        ring.add(_numbered(total, count))
        total += count
    batch = ring.sample(500, np.random.default_rng(0), RunningNormalizer(2), 1e6)
    numbers = batch.rewards.astype(int)
    assert ring.size == min(total, 25)
    assert numbers.min() >= total - ring.size
    assert numbers.max() < total
    np.testing.assert_array_equal(batch.actions, numbers % 7)
    np.testing.assert_array_equal(batch.terminated, numbers % 2 == 0)
    np.testing.assert_allclose(batch.observations[:, 0], numbers, rtol=1e-6)
    np.testing.assert_allclose(batch.next_observations[:, 1], 0.5 - numbers, rtol=1e-6)


def test_observations_are_normalised_by_todays_statistics_and_clipped() -> None:
    ring, normalizer, transitions = ReplayRing(64, 2), RunningNormalizer(2), _numbered(0, 64)
    ring.add(transitions)
    normalizer.update(transitions.observations)
    batch = ring.sample(300, np.random.default_rng(1), normalizer, 1.2)
    raw = np.stack([batch.rewards, -batch.rewards], axis=1)
    np.testing.assert_allclose(batch.observations, normalizer.normalize(raw, 1.2), atol=1e-6)
    assert abs(batch.observations).max() == np.float32(1.2)


def test_every_kept_transition_is_drawn_about_equally_often() -> None:
    ring = ReplayRing(10, 2)
    ring.add(_numbered(0, 10))
    drawn = ring.sample(20_000, np.random.default_rng(2), RunningNormalizer(2), 10.0).rewards.astype(int)
    assert abs(np.bincount(drawn, minlength=10) - 2000).max() < 250


def test_restored_ring_draws_the_same() -> None:
    ring, other, normalizer = ReplayRing(40, 2), ReplayRing(40, 2), RunningNormalizer(2)
    ring.add(_numbered(0, 55))
    other.set_state(ring.get_state())
    for each in (ring, other):
        each.add(_numbered(55, 9))
    batches = [each.sample(64, np.random.default_rng(3), normalizer, 10.0) for each in (ring, other)]
    for name, values in vars(batches[0]).items():
        np.testing.assert_array_equal(values, vars(batches[1])[name])


def test_empty_ring_and_foreign_state_are_refused() -> None:
    with pytest.raises(SoulsGraphError, match="found none"):
        ReplayRing(4, 2).sample(1, np.random.default_rng(0), RunningNormalizer(2), 10.0)
    with pytest.raises(SoulsGraphError, match="at most 4 rows of 9"):
        ReplayRing(4, 3).set_state(ReplayRing(4, 2).get_state())
