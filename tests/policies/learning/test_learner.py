"""The learner's two paths, against each other and against stable-baselines3."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from fakes import stages
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL, ModuleUpdates, SkillDQNLearner
from soulsgraph_policies.learning.replay import Batch
from soulsgraph_policies.learning.update_kernel import UpdateMetrics

SKILLS = [make_skill("dodge"), make_skill("heal_attack")]
SIZE, ACTIONS = SKILLS[-1].observation.size, len(SKILLS[-1].actions)
BOTH = pytest.mark.parametrize("path", [AUTOGRAD, CPU_KERNEL])


def make_learner(path: str | None, **options: Any) -> SkillDQNLearner:
    return stages.make_learner(SKILLS, replace(skill_hyperparameters(90_000), **options), path)


def trained(learner: SkillDQNLearner) -> ModuleUpdates:
    return learner.learning["heal_attack"]


def make_batch(count: int, seed: int, scale: float = 1.0) -> Batch:
    return stages.drawn_batch(SKILLS[-1], count, seed, scale)


def update(learner: SkillDQNLearner, batch: Batch, decisions: int = 0) -> UpdateMetrics:
    return stages.update(learner, "heal_attack", batch, decisions)


def vector(learner: SkillDQNLearner, network: str = "q_network") -> np.ndarray:
    parameters = getattr(trained(learner).module, network).parameters()
    return np.concatenate([part.detach().numpy().ravel() for part in parameters])


target_vector = partial(vector, network="target_network")


def moments(learner: SkillDQNLearner, name: str) -> np.ndarray:
    parameters = trained(learner).module.q_network.parameters()
    return np.concatenate([trained(learner).optimizer.state[p][name].numpy().ravel() for p in parameters])


class _Space(gym.Env):
    observation_space = gym.spaces.Box(-10, 10, (SIZE,), np.float32)
    action_space = gym.spaces.Discrete(ACTIONS)


class _Fixed:
    """A replay that returns the one batch it was made of."""

    def __init__(self, batch: Batch) -> None:
        columns = [torch.from_numpy(values) for values in vars(batch).values()]
        observations, following, actions, rewards, discounts, *_ = columns
        terminated = (discounts == 0.0).float()
        self._samples = ReplayBufferSamples(
            observations, actions[:, None], following, terminated[:, None], rewards[:, None]
        )

    def sample(self, batch_size: int, env: object = None) -> ReplayBufferSamples:
        assert batch_size == len(self._samples.rewards)
        return self._samples


def _reference(learner: SkillDQNLearner, batch: Batch) -> DQN:
    model = DQN("MlpPolicy", _Space(), learning_rate=3e-4, batch_size=256, buffer_size=1, device="cpu")
    module = trained(learner).module
    for theirs, ours in ((model.q_net, module.q_network), (model.q_net_target, module.target_network)):
        theirs.q_net.load_state_dict(ours.state_dict())
    model.replay_buffer = _Fixed(batch)
    model.set_logger(Logger(None, []))
    return model


@pytest.mark.parametrize("reward_scale", [1.0, 300.0], ids=["norm below the clip", "norm above the clip"])
@BOTH
def test_one_update_equals_stable_baselines3(path: str, reward_scale: float) -> None:
    learner = make_learner(path)
    for parameter in trained(learner).module.q_network.parameters():  # So that network and target differ.
        parameter.data *= 1.0 if reward_scale == 1.0 else 30.0
    batch = make_batch(256, 0, reward_scale)
    model = _reference(learner, batch)
    figures = update(learner, batch)
    model.train(gradient_steps=1, batch_size=256)
    norm = torch.stack([p.grad.norm() for p in model.q_net.parameters()]).norm().item()
    assert (norm > 9.9) == (reward_scale > 1.0), "the case is about the gradient clip"
    assert figures.loss == pytest.approx(model.logger.name_to_value["train/loss"], rel=1e-5)
    reference = torch.cat([p.detach().ravel() for p in model.q_net.parameters()]).numpy()
    np.testing.assert_allclose(vector(learner), reference, rtol=1e-5, atol=1e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        states = [model.policy.optimizer.state[p][name] for p in model.q_net.parameters()]
        reference = torch.cat([s.ravel() for s in states]).numpy()
        np.testing.assert_allclose(moments(learner, name), reference, rtol=1e-5, atol=1e-6)


def weighted_batch(count: int, seed: int) -> Batch:
    """A batch as drawn from a prioritised replay with n-step returns."""
    batch, random = make_batch(count, seed), np.random.default_rng(seed)
    several = (0.99 ** random.integers(1, 16, count)).astype(np.float32)
    weights = random.random(count).astype(np.float32)
    return replace(batch, discounts=batch.discounts * several, weights=weights)


def partly_shown_batch(count: int, seed: int) -> Batch:
    """Half of the rows with a margin, which some actions have and some lack."""
    batch, random = weighted_batch(count, seed), np.random.default_rng([seed, 1])
    return replace(batch, margins=np.where(random.random(count) < 0.5, 0.3, 0.0).astype(np.float32))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (make_batch, {}),
        (make_batch, {"double_q": True}),
        (weighted_batch, {"double_q": True}),
        (weighted_batch, {}),
        (partly_shown_batch, {"margin": 0.8}),
    ],
)
def test_one_update_is_the_same_on_both_paths_wherever_a_run_stands(
    make: Callable[[int, int], Batch], options: dict[str, Any]
) -> None:
    leader, follower = (
        make_learner(path, train_batch_size_per_learner=64, **options) for path in (AUTOGRAD, CPU_KERNEL)
    )
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    for call, decisions in enumerate((100, 5_000, 9_999)):  # The target is copied at 10,000.
        # Last bits grow over a chain of updates, so both begin each compared one at the same point.
        update(leader, make(320, call), decisions)
        trained(follower).set_state(trained(leader).get_state())
        batch = make(64, 100 + call)
        first, second = (update(learner, batch, decisions + 4) for learner in (leader, follower))
        close(second.errors, first.errors)
        close([second.loss, second.q_mean, second.td_error], [first.loss, first.q_mean, first.td_error])
        close(vector(follower), vector(leader))
        close(target_vector(follower), target_vector(leader))
        for name in ("exp_avg", "exp_avg_sq"):
            close(moments(follower, name), moments(leader, name))


def taken(learner: SkillDQNLearner, updates: int) -> None:
    """Make the learner believe that this number of updates was taken."""
    for state in trained(learner).optimizer.state.values():
        state["step"].fill_(updates)


@BOTH
def test_target_is_copied_between_the_updates_due_before_and_after_the_end_of_a_period(path: str) -> None:
    # With learning from 100 on and an update each 4 decisions, the updates numbered 2,473 to 2,476 are
    # due at 9,992, 9,996, 10,000 and 10,004: the copy at 10,000 comes after the second of them.
    learner, halfway = make_learner(path), make_learner(path)
    initial, batch = vector(learner), make_batch(4 * 256, 1)
    for each in (learner, halfway):
        taken(each, 2_472)
        update(each, make_batch(256, 0), 9_990)
        taken(each, 2_472)
    update(halfway, batch.part(0, 512), 9_996)
    np.testing.assert_array_equal(target_vector(halfway), initial)
    update(learner, batch, 10_004)
    np.testing.assert_array_equal(target_vector(learner), vector(halfway))
    assert abs(vector(learner) - target_vector(learner)).max() > 0


def test_update_path_is_chosen_by_what_the_kernel_can_do() -> None:
    assert trained(make_learner(None)).updater is not None
    assert trained(make_learner(None, fcnet_hiddens=(8,))).updater is None
    with pytest.raises(SoulsGraphError, match=AUTOGRAD):
        make_learner(CPU_KERNEL, fcnet_hiddens=(8,))


@BOTH
def test_played_network_is_the_average_over_the_last_part_of_the_budget(path: str) -> None:
    learner, seen = make_learner(path, averaged_fraction=0.2), []
    for call, decisions in enumerate((100, 72_000, 72_001, 80_000, 90_000)):
        update(learner, make_batch(256, call), decisions)
        last = trained(learner).module.weights()["q_network.4.weight"].copy()
        played = trained(learner).playing_weights()["q_network.4.weight"]
        seen += [last] if decisions > 72_000 else []
        np.testing.assert_allclose(played, np.mean(seen, axis=0) if seen else last, atol=1e-7)
    assert abs(played - last).max() > 1e-5
