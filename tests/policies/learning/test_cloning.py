"""Networks that choose as somebody else did, and replays that keep what was shown."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks, RunningNormalizer
from soulsgraph_policies.learning.cloning import UPDATES, clone
from soulsgraph_policies.learning.hyperparameters import PRESETS, DQNHyperparameters
from soulsgraph_policies.learning.replay import ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions

SKILL = make_skill("lock_on")
NUMBERS = DQNHyperparameters(budget=300, buffer_size=100, margin=0.8)


def transitions(count, seed=0, rewards=None):
    """Decisions of somebody who toggles the lock wherever the angle, the first value, is above 1."""
    random = np.random.default_rng(seed)
    observed = random.normal(1.0, 1.0, (count + 1, SKILL.observation.size)).astype(np.float32)
    return Transitions(
        observations=observed[:-1],
        next_observations=observed[1:],
        actions=np.where(observed[:-1, 0] > 1.0, 0, 1),
        rewards=random.normal(0.0, 2.0, count).astype(np.float32) if rewards is None else rewards,
        terminated=np.zeros(count, np.bool_),
        ticks=np.ones(count, np.int64),
        lanes=np.zeros(count, np.int64),
        episodes=np.zeros(count, np.int64),
    )


def sampled(replay, count=4_000):
    """Draw transitions and return the batch and which of them were shown."""
    normalizer = RunningNormalizer(SKILL.observation.size)
    batch = replay.sample(count, np.random.default_rng(1), normalizer)
    return batch, batch.margins > 0.0


@pytest.mark.parametrize("options", [{}, {"dueling": True, "quantiles": 8, "double": True}])
@pytest.mark.slow
def test_a_clone_chooses_as_was_shown_also_where_nothing_was_shown(options):
    found = clone(SKILL, transitions(2_000), replace(NUMBERS, **options), seed=0)
    assert found.same > 0.95
    network = FrozenNetwork.of(SKILL, load_scenario("iudex-phase1"), found.weights, NUMBERS.observation_clip)
    angles = np.array([-1.0, 0.0, 0.5, 1.5, 2.0, 3.0], np.float32)
    rows = np.zeros((6, 25), np.float32)
    rows[:, network.observation.columns[0]], rows[:, network.observation.columns[1]] = angles, 1.0
    chosen = FusedNetworks([network]).q_values(0, rows).argmax(axis=1)
    np.testing.assert_array_equal(chosen, np.where(angles > 1.0, 0, 1))


@pytest.mark.slow
def test_the_same_seed_makes_the_same_clone_on_one_thread_and_every_update_is_reported():
    torch.set_num_threads(2)
    updates = []
    one = clone(SKILL, transitions(300), NUMBERS, seed=3, on_update=lambda: updates.append(torch.get_num_threads()))
    other = clone(SKILL, transitions(300), NUMBERS, seed=3)
    assert all((one.weights[name] == values).all() for name, values in other.weights.items())
    assert updates == [1] * UPDATES


@pytest.mark.parametrize(
    ("count", "numbers", "found"),
    [(0, NUMBERS, "none"), (9, PRESETS["pqn"].hyperparameters(NUMBERS), "a preset without a replay")],
)
def test_nothing_to_clone_and_learning_without_a_replay_are_refused(count, numbers, found):
    with pytest.raises(SoulsGraphError, match=f"expected decisions to clone and a preset with a replay, found {found}"):
        clone(SKILL, transitions(count), numbers, seed=0)


@pytest.mark.parametrize("priority_exponent", [0.0, 0.6])
def test_what_was_shown_is_drawn_as_often_as_what_the_module_did(priority_exponent):
    numbers = replace(NUMBERS, priority_exponent=priority_exponent)
    replay = ReplayBuffer(numbers, SKILL.observation.size)
    replay.show(transitions(50, seed=1))
    batch, shown = sampled(replay)
    assert shown.all()
    replay.learned(np.ones(len(shown), np.float32))
    assert batch.margins == pytest.approx(0.8 * transitions(50, seed=1).rewards.std())
    # 100 of the module's own, all that are kept, beside 50. Of 4,000 draws with the seed 1 a third are shown;
    # six standard deviations are 179, which chance exceeds twice in a thousand million times.
    for part in (60, 60, 60):
        replay.add(transitions(part, rewards=np.full(part, 7.0, np.float32)))
    batch, shown = sampled(replay)
    assert abs(int(shown.sum()) - 4_000 / 3) < 179
    np.testing.assert_array_equal(batch.rewards == 7.0, ~shown)
    replay.learned(np.ones(len(shown), np.float32))


def test_a_replay_goes_on_from_its_state_with_what_was_shown():
    one, other = (ReplayBuffer(replace(NUMBERS, n_step=3), SKILL.observation.size) for _ in range(2))
    for replay in (one, other):
        replay.show(transitions(50, seed=1))
    one.add(transitions(70))
    other.set_state(one.get_state())
    for mine, theirs in zip(*(vars(sampled(replay)[0]).values() for replay in (one, other)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_without_anything_shown_no_row_has_a_margin():
    replay = ReplayBuffer(NUMBERS, SKILL.observation.size)
    replay.add(transitions(20))
    assert not sampled(replay)[1].any()


def test_what_was_shown_has_a_margin_also_where_its_rewards_are_all_alike():
    replay = ReplayBuffer(NUMBERS, SKILL.observation.size)
    replay.show(transitions(20, rewards=np.full(20, 0.3, np.float32)))
    assert sampled(replay)[0].margins == pytest.approx(0.8)
