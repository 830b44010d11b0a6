"""Transitions that a replay keeps for good: their share of a batch, their losses, and that a stage resumes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.learning import LinearRunner
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import Mirror, make_skill
from soulsgraph_policies.agents.inference import RunningNormalizer
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL
from soulsgraph_policies.learning.replay import ReplayBuffer, pack
from soulsgraph_policies.learning.sampler import Transitions

SIZE = 3
NUMBERS = DQNHyperparameters(budget=400, buffer_size=60, batch_size=20, margin=0.8, semi_markov=True)


def transitions(count: int, seed: int, reward: float | None = None, size: int = SIZE, actions: int = 2) -> Transitions:
    """Decisions of one lane, of rewards of their own unless all have the same."""
    random = np.random.default_rng(seed)
    observed = random.standard_normal((count + 1, size)).astype(np.float32)
    rewards = random.standard_normal(count).astype(np.float32)
    return Transitions(
        observations=observed[:-1],
        next_observations=observed[1:],
        actions=random.integers(0, actions, count),
        rewards=rewards if reward is None else np.full(count, reward, np.float32),
        terminated=random.random(count) < 0.2,
        ticks=random.integers(1, 8, count),
        lanes=np.zeros(count, np.int64),
        episodes=np.zeros(count, np.int64),
    )


def make_replay(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(replace(NUMBERS, **options), SIZE)


def sampled(replay: ReplayBuffer, count: int = 20_000, seed: int = 1) -> Any:
    return replay.sample(count, np.random.default_rng(seed), RunningNormalizer(SIZE))


METHODS: list[dict[str, Any]] = [{}, {"priority_exponent": 0.6}, {"n_step": 3}]


@pytest.mark.parametrize("options", METHODS)
def test_every_reserve_has_its_share_and_the_rest_is_as_before(options: dict[str, Any]) -> None:
    replay = make_replay(**options)
    replay.show(transitions(20, 1, reward=100.0))
    replay.keep(transitions(7, 2, reward=200.0), 0.25)
    replay.keep(transitions(30, 3, reward=300.0), 0.125, margin=0.5)
    replay.add(transitions(90, 4, reward=400.0 if "n_step" not in options else None))
    batch = sampled(replay)
    shares = [float((batch.rewards == reward).mean()) for reward in (100.0, 200.0, 300.0)]
    # Demonstrations are drawn as often as the 60 own ones that are left. Six deviations of 20,000 draws are 0.0184 at
    # most, which a seed exceeds once in 500 million.
    np.testing.assert_allclose(shares, [0.625 * 20 / 80, 0.25, 0.125], atol=0.0184)
    assert set(batch.margins[batch.rewards == 100.0]) == {np.float32(0.8)}
    assert set(batch.margins[batch.rewards == 300.0]) == {np.float32(0.5)}
    assert not batch.margins[~np.isin(batch.rewards, (100.0, 300.0))].any()
    replay.learned(np.ones(len(batch.rewards), np.float32))


@settings(max_examples=30)
@given(shares=st.lists(st.floats(0.01, 0.3), min_size=1, max_size=3), own=st.integers(0, 80), seed=st.integers(0, 99))
def test_before_the_first_own_transition_reserves_fill_the_batch(shares: list[float], own: int, seed: int) -> None:
    replay = make_replay()
    for place, share in enumerate(shares):
        replay.keep(transitions(5, place, reward=float(place)), share)
    if own:
        replay.add(transitions(own, 50, reward=99.0))
    rewards = sampled(replay, 200, seed).rewards
    assert set(rewards) <= {*map(float, range(len(shares))), *([99.0] if own else [])}
    if not own:
        counts = np.bincount(rewards.astype(int), minlength=len(shares)) / 200
        np.testing.assert_allclose(counts, np.array(shares) / sum(shares), atol=6 * 0.5 / np.sqrt(200))


@pytest.mark.parametrize("options", METHODS)
def test_without_td_a_reserve_has_a_margin_alone(options: dict[str, Any]) -> None:
    replay = make_replay(**options)
    replay.keep(transitions(7, 2, reward=200.0), 0.5, td=False, margin=2.0)
    replay.add(transitions(30, 4))
    for seed in range(2):
        batch = sampled(replay, 400, seed)
        kept = batch.rewards == 200.0
        assert 0.3 < kept.mean() < 0.7
        assert not batch.weights[kept].any()
        assert (batch.weights[~kept] > 0.0).all()
        np.testing.assert_array_equal(batch.margins, np.where(kept, np.float32(2.0), 0.0))


def test_a_reserve_is_learned_from_by_the_spread_of_its_own_rewards() -> None:
    replay, kept = make_replay(), transitions(40, 2)
    replay.keep(kept, 1.0, margin=2.0)
    assert sampled(replay, 20).margins == pytest.approx(2.0 * float(kept.rewards.std()))


@pytest.mark.parametrize("options", [{"semi_markov": True}, {"semi_markov": False}, {"gamma": 0.5}, {"gamma": 1.0}])
def test_a_sample_of_own_transitions_is_kept_elsewhere_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    numbers = replace(NUMBERS, **options)
    replay, written = ReplayBuffer(numbers, SIZE), transitions(90, 5)
    replay.keep(transitions(9, 6), 0.5)
    replay.add(written)
    reserve = replay.reserve(25, np.random.default_rng(7))
    write_training_state(tmp_path, {"reserve": vars(reserve)})
    again = Transitions(**read_training_state(tmp_path)["reserve"])
    own, rows = pack(written.last(60), numbers), pack(again, numbers)
    assert len({row.tobytes() for row in rows}) == 25
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in own}
    assert len(replay.reserve(1_000, np.random.default_rng(7))) == 60
    assert len(ReplayBuffer(numbers, SIZE).reserve(5, np.random.default_rng(7))) == 0
    if numbers.semi_markov and numbers.gamma < 1.0:
        known = {row.tobytes(): ticks for row, ticks in zip(own, written.last(60).ticks, strict=True)}
        alive = ~again.terminated
        expected = np.array([known[row.tobytes()] for row in rows])
        np.testing.assert_array_equal(again.ticks[alive], expected[alive])


def test_every_own_transition_is_sampled_about_equally_often() -> None:
    replay = make_replay()
    replay.add(replace(transitions(60, 5), rewards=np.arange(60, dtype=np.float32)))
    random = np.random.default_rng(8)
    counts = sum(np.bincount(replay.reserve(15, random).rewards.astype(int), minlength=60) for _ in range(2_000))
    # 500 each, with a deviation of 19.4; one seed in 9,000 has one of 60 beyond five of them.
    assert abs(counts - 500).max() < 97


def refused(transitions: Transitions, share: float, **options: Any) -> str:
    replay = make_replay()
    replay.keep(TWO, 0.75)
    with pytest.raises(SoulsGraphError) as caught:
        replay.keep(transitions, share, **options)
    return str(caught.value)


TWO = transitions(2, 0)


@pytest.mark.parametrize("share", [0.0, -0.1, 0.26, 2.0, float("nan")])
def test_a_share_that_is_not_left_is_refused(share: float) -> None:
    assert "a share of each batch above 0 and at most 0.25, what is left" in refused(TWO, share)


def test_reserves_that_teach_nothing_or_do_not_fit_are_refused() -> None:
    assert "at least one transition of 3 observed values, to keep, found" in refused(TWO.first(0), 0.1)
    assert "2 of 4" in refused(transitions(2, 0, size=4), 0.1)
    for options in ({"td": False}, {"margin": -1.0}, {"margin": float("inf")}):
        assert "a margin of at least 0, above 0 without a temporal-difference loss" in refused(TWO, 0.1, **options)


def test_shares_that_fill_the_batch_leave_no_own_transition() -> None:
    replay = make_replay()
    for place in range(10):
        replay.keep(transitions(3, place, reward=5.0), 0.1)
    replay.add(transitions(20, 3, reward=6.0))
    assert set(sampled(replay, 5_000).rewards) == {5.0}


@pytest.mark.parametrize("options", METHODS)
def test_a_state_replaces_reserves_and_leaves_demonstrations(options: dict[str, Any]) -> None:
    one, other = make_replay(**options), make_replay(**options)
    one.keep(transitions(30, 3), 0.25)
    one.show(transitions(20, 1))
    one.keep(transitions(7, 2), 0.125, td=False, margin=1.0)
    one.add(transitions(90, 4))
    other.keep(transitions(50, 9), 0.5)
    other.show(transitions(20, 1))
    other.set_state(one.get_state())
    for mine, theirs in zip(*(vars(sampled(replay, 500)).values() for replay in (one, other)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_equal(one.get_state(), other.get_state())
    plain = make_replay(**options)
    plain.add(transitions(90, 4))
    other.set_state(plain.get_state())
    assert "kept" not in other.get_state()


SKILL = make_skill("heal_attack")
ALL: dict[str, Any] = {
    "double": True,
    "n_step": 3,
    "semi_markov": True,
    "tau": 0.01,
    "priority_exponent": 0.6,
    "mirrored": True,
    "averaged_fraction": 0.7,
}


def make_stage(path: str, budget: int = 1_200, **method: Any) -> SkillDQN:
    numbers = DQNHyperparameters(budget=budget, buffer_size=budget // 3, **method)
    config = SkillDQN.get_default_config()
    config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
    mirror = Mirror.of(SKILL, load_scenario("iudex-phase1"))
    stage = config.stage([SKILL], numbers, 128, path, mirror, seed=1).build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


def own_replay(stage: SkillDQN) -> ReplayBuffer:
    replay = stage.training["heal_attack"].replay
    assert isinstance(replay, ReplayBuffer)
    return replay


def run(stage: SkillDQN, decisions: int) -> SkillDQN:
    while stage.decisions < decisions:
        stage.training_step()
    return stage


@pytest.mark.parametrize(("path", "method"), [(CPU_KERNEL, ALL), (AUTOGRAD, ALL), (CPU_KERNEL, {})])
def test_a_resumed_stage_goes_on_with_its_reserve_bit_for_bit(
    path: str, method: dict[str, Any], tmp_path: Path
) -> None:
    earlier = own_replay(run(make_stage(path, 700, **method), 700)).reserve(60, np.random.default_rng(0))
    stages = [make_stage(path, **method) for _ in range(2)]
    for stage in stages:
        own_replay(stage).keep(earlier, 0.3)
        own_replay(stage).keep(earlier.first(20), 0.2, td=False, margin=1.0)
        run(stage, 600)
    stages[0].save_checkpoint(str(tmp_path))
    resumed = make_stage(path, **method)
    resumed.load_checkpoint(str(tmp_path))
    played, expected = (run(stage, 1_200).weights("heal_attack") for stage in (resumed, stages[1]))
    for name, values in expected.items():
        np.testing.assert_array_equal(played[name], values, err_msg=name)
    plain = run(make_stage(path, **method), 1_200).weights("heal_attack")
    assert any((plain[name] != values).any() for name, values in expected.items())


@pytest.mark.parametrize("path", [CPU_KERNEL, AUTOGRAD])
def test_cloned_decisions_are_chosen_on_with_a_reserve_and_forgotten_without(path: str) -> None:
    """What is cloned is not what earns, and a margin alone keeps it, though the preset has none."""
    kept = transitions(200, 3, size=SKILL.observation.size)
    kept = replace(kept, actions=np.where(kept.observations[:, 0] > 0.0, 0, 1))
    alike = []
    for share in (0.0, 0.5):
        stage = make_stage(path, 800, train_freq=1, batch_size=64, learning_rate=5e-3)
        if share:
            own_replay(stage).keep(kept, share, td=False, margin=1.0)
        module = run(stage, 800).learner.q_module("heal_attack")
        chosen = module.forward_inference({"obs": torch.as_tensor(kept.observations)})["actions"].numpy()
        alike.append(float((chosen == kept.actions).mean()))
    assert alike[1] > 0.9 > 0.7 > alike[0]
