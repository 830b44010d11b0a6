"""A constraint before Adam: its pull and mask, alike on both paths and in the average for play."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import stages
from fakes.stages import drawn_batch
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL, ModuleUpdates, SkillDQNLearner

SKILL = make_skill("dodge")
BOTH = pytest.mark.parametrize("path", [AUTOGRAD, CPU_KERNEL])


def make_updates(path: str | None, **options: Any) -> tuple[SkillDQNLearner, ModuleUpdates]:
    numbers = DQNHyperparameters(
        budget=1_000, capacity=300, **{"train_batch_size_per_learner": 32, "double_q": True, **options}
    )
    learner = stages.make_learner([SKILL], numbers, path)
    return learner, learner.learning["dodge"]


def learn(learner: SkillDQNLearner, updates: int, seed: int, decisions: int = 200) -> None:
    stages.update(learner, "dodge", drawn_batch(SKILL, 32 * updates, seed), decisions)


def parameters(updates: ModuleUpdates) -> Weights:
    network = updates.module.q_network
    return {f"q_network.{name}": part.detach().numpy().copy() for name, part in network.named_parameters()}


def drawn(weights: Weights, seed: int, strength: float = 0.5, free: float = 0.6) -> Constraint:
    random = np.random.default_rng(seed)
    shapes = {name: values.shape for name, values in weights.items()}
    return Constraint(
        importance={name: random.exponential(size=shape) for name, shape in shapes.items()},
        anchor={name: random.normal(0.0, 0.2, shape) for name, shape in shapes.items()},
        strength=strength,
        mask={name: random.random(shape) < free for name, shape in shapes.items()},
    )


def test_the_pull_is_strength_times_importance_and_a_weight_without_importance_has_one() -> None:
    importance, anchor, mask = ({"a": np.array(values, np.float32)} for values in ([2, 3], [5, 6], [0, 1]))
    for constraint, expected in (
        (Constraint(importance, anchor, 0.5, mask), ([1.0, 1.5], [5, 6], [0, 1])),
        (Constraint(None, anchor, 0.5), ([0.5, 0.5], [5, 6], [1, 1])),
        (Constraint(mask=mask, strength=0.5), ([0, 0], [0, 0], [0, 1])),
    ):
        ((found),) = constraint.parts({"a": (2,)})
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), strength=st.sampled_from([0.0, 1.0, 300.0]), free=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_constrained_update_is_the_same_on_both_paths(seed: int, strength: float, free: float) -> None:
    (leader, led), (follower, followed) = (make_updates(path) for path in (AUTOGRAD, CPU_KERNEL))
    led.constrain(drawn(parameters(led), seed, strength, free))
    learn(leader, 3, seed)
    # It comes with the state.
    followed.set_state(led.get_state())
    for learner in (leader, follower):
        learn(learner, 1, seed + 1)
    for name, values in parameters(led).items():
        np.testing.assert_allclose(parameters(followed)[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@BOTH
def test_what_a_mask_holds_stays_bit_identical_in_network_and_average(path: str) -> None:
    learner, updates = make_updates(path, averaged_fraction=0.5)
    # Adam has moments by which it would move on.
    learn(learner, 4, 0)
    before, constraint = parameters(updates), drawn(parameters(updates), 1)
    updates.constrain(constraint)
    for call, decisions in enumerate((300, 600, 800, 1_000)):
        learn(learner, 4, call, decisions)
    assert constraint.mask is not None
    played, last = updates.playing_weights(), parameters(updates)
    assert stages.differs(last, played)
    for name, values in before.items():
        held = constraint.mask[name] == 0.0
        for now in (last, played):
            np.testing.assert_array_equal(now[name][held], values[held])
            assert (now[name][~held] != values[~held]).mean() > 0.95


@BOTH
def test_the_first_step_goes_the_way_of_the_pulled_gradient(path: str) -> None:
    # Adam's first step is the learning rate against the sign of what it sees, which here is the pull almost alone.
    learner, updates = make_updates(path, lr=1e-3)
    before = parameters(updates)
    ahead = {name: np.where(np.indices(values.shape).sum(axis=0) % 2, 1.0, -1.0) for name, values in before.items()}
    updates.constrain(Constraint(anchor={name: values + ahead[name] for name, values in before.items()}, strength=1e6))
    learn(learner, 1, 0)
    for name, values in parameters(updates).items():
        np.testing.assert_allclose(values - before[name], 1e-3 * ahead[name], rtol=1e-2)
