"""Transitions that a replay keeps for good, shown or of earlier tasks: their share, and how they are learned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.stages import assert_same
from fakes.stages import drawn_transitions as transitions
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import Batch, ReplayBuffer, pack
from soulsgraph_policies.learning.sampler import Transitions

SIZE = 3
NUMBERS = DQNHyperparameters(budget=400, capacity=60, train_batch_size_per_learner=20, margin=0.8, semi_markov=True)


def make_replay(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(replace(NUMBERS, **options), SIZE)


def sampled(replay: ReplayBuffer, count: int = 20_000, seed: int = 1) -> Batch:
    return replay.sample(count, np.random.default_rng(seed), RunningNormalizer(SIZE))


METHODS: list[dict[str, Any]] = [{}, {"alpha": 0.6}, {"n_step": 3}]


@pytest.mark.parametrize("options", METHODS)
def test_every_reserve_has_its_share_and_the_rest_is_as_before(options: dict[str, Any]) -> None:
    replay = make_replay(**options)
    replay.keep(transitions(20, 1, rewards=100.0))
    replay.keep(transitions(7, 2, rewards=200.0), 0.25)
    replay.keep(transitions(30, 3, rewards=300.0), 0.125, margin=0.5)
    replay.add(transitions(90, 4))
    batch = sampled(replay)
    shares = [float((batch.rewards == reward).mean()) for reward in (100.0, 200.0, 300.0)]
    # Demonstrations are drawn as often as the 60 own ones that are left. Six deviations of 20,000 draws are 0.0184 at
    # most, which a seed exceeds once in 500 million.
    np.testing.assert_allclose(shares, [0.625 * 20 / 80, 0.25, 0.125], atol=0.0184)
    # Rewards that are all alike say nothing of their size.
    assert set(batch.margins[batch.rewards == 100.0]) == {np.float32(0.8)}
    assert set(batch.margins[batch.rewards == 300.0]) == {np.float32(0.5)}
    assert not batch.margins[~np.isin(batch.rewards, (100.0, 300.0))].any()
    replay.learned(np.ones(len(batch.rewards), np.float32))


@settings(max_examples=20)
@given(shares=st.lists(st.floats(0.01, 0.3), min_size=1, max_size=3), own=st.integers(0, 80), seed=st.integers(0, 99))
def test_before_the_first_own_transition_reserves_fill_the_batch(shares: list[float], own: int, seed: int) -> None:
    replay = make_replay()
    for place, share in enumerate(shares):
        replay.keep(transitions(5, place, rewards=float(place)), share)
    if own:
        replay.add(transitions(own, 50, rewards=99.0))
    rewards = sampled(replay, 200, seed).rewards
    assert set(rewards) <= {*map(float, range(len(shares))), *([99.0] if own else [])}
    if not own:
        counts = np.bincount(rewards.astype(int), minlength=len(shares)) / 200
        np.testing.assert_allclose(counts, np.array(shares) / sum(shares), atol=6 * 0.5 / np.sqrt(200))


@pytest.mark.parametrize("options", METHODS)
def test_without_td_a_reserve_has_a_margin_alone(options: dict[str, Any]) -> None:
    replay = make_replay(**options)
    replay.keep(transitions(7, 2, rewards=200.0), 0.5, td=False, margin=2.0)
    replay.add(transitions(30, 4))
    for seed in range(2):
        batch = sampled(replay, 400, seed)
        kept = batch.rewards == 200.0
        assert 0.3 < kept.mean() < 0.7
        assert not batch.weights[kept].any()
        assert (batch.weights[~kept] > 0.0).all()
        np.testing.assert_array_equal(batch.margins, np.where(kept, np.float32(2.0), 0.0))


def test_a_margin_is_in_deviations_of_the_rewards_that_it_is_of() -> None:
    reserve, shown, kept = make_replay(), make_replay(), transitions(40, 2)
    reserve.keep(kept, 1.0, margin=2.0)
    shown.keep(kept)
    assert sampled(reserve, 20).margins == pytest.approx(2.0 * float(kept.rewards.std()))
    assert sampled(shown, 20).margins == pytest.approx(0.8 * float(kept.rewards.std()))


@pytest.mark.parametrize("options", [{"semi_markov": True}, {"semi_markov": False}, {"gamma": 1.0}])
def test_a_sample_of_own_transitions_is_kept_elsewhere_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    numbers = replace(NUMBERS, **options)
    replay, written = ReplayBuffer(numbers, SIZE), transitions(90, 5)
    replay.keep(transitions(9, 6), 0.5)
    replay.add(written)
    write_training_state(tmp_path, {"reserve": vars(replay.reserve(25, np.random.default_rng(7)))})
    again = Transitions(**read_training_state(tmp_path)["reserve"])
    last = Transitions(*(column[-60:] for column in vars(written).values()))
    own, rows = pack(last, numbers), pack(again, numbers)
    assert len({row.tobytes() for row in rows}) == 25
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in own}
    assert len(replay.reserve(1_000, np.random.default_rng(7))) == 60
    assert len(ReplayBuffer(numbers, SIZE).reserve(5, np.random.default_rng(7))) == 0
    known = {row.tobytes(): ticks for row, ticks in zip(own, last.ticks, strict=True)}
    expected = np.array([known[row.tobytes()] for row in rows])
    by_ticks = numbers.semi_markov and numbers.gamma < 1.0
    np.testing.assert_array_equal(again.ticks, np.where(by_ticks & ~again.terminated, expected, 1))


@pytest.mark.parametrize("options", METHODS)
def test_a_restored_replay_goes_on_as_the_one_that_was_saved(options: dict[str, Any]) -> None:
    one, other, plain = (make_replay(**options) for _ in range(3))
    one.keep(transitions(30, 3), 0.25)
    one.keep(transitions(20, 1))
    one.keep(transitions(7, 2), 0.125, td=False, margin=1.0)
    other.keep(transitions(50, 9), 0.5)
    other.keep(transitions(20, 1))
    for replay in (one, plain):
        replay.add(transitions(90, 4))
        sampled(replay, 20)
        replay.learned(np.arange(20, dtype=np.float32))
    other.set_state(one.get_state())
    for replay in (one, other):
        replay.add(transitions(9, 5))
    assert_same(vars(sampled(one, 500)), vars(sampled(other, 500)))
    np.testing.assert_equal(one.get_state(), other.get_state())
    other.set_state(plain.get_state())
    np.testing.assert_equal(plain.get_state(), other.get_state())
