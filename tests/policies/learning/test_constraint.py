"""A constraint before Adam: its pull and mask, alike on both paths, in the average for play and over a checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_SAMPLED_LIFETIME

from fakes.learning import LinearRunner, q_values
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.importance import fisher_importance
from soulsgraph_policies.learning.learner import (
    AUTOGRAD,
    CPU_KERNEL,
    ModuleUpdates,
    SkillDQNLearner,
    as_multi_agent_batch,
)
from soulsgraph_policies.learning.pruning import all_free, free_weights, still_free, task_weights
from soulsgraph_policies.learning.replay import Batch, ReplayBuffer

SKILL = make_skill("dodge")
SIZE, ACTIONS = SKILL.observation.size, len(SKILL.actions)
BOTH = pytest.mark.parametrize("path", [AUTOGRAD, CPU_KERNEL])


def make_updates(path: str | None, **options: Any) -> tuple[SkillDQNLearner, ModuleUpdates]:
    config = SkillDQN.get_default_config()
    numbers = DQNHyperparameters(budget=1_000, buffer_size=300, batch_size=64, **{"double": True, **options})
    config.stage([SKILL], numbers, 128, path, seed=5)
    learner = SkillDQNLearner(config=config, module_spec=config.rl_module_spec)
    learner.build()
    return learner, learner.learning["dodge"]


def make_batch(count: int, seed: int, scale: float = 1.0) -> Batch:
    random = np.random.default_rng(seed)
    observations, following = (random.standard_normal((count, SIZE)).astype(np.float32) for _ in range(2))
    rewards = (scale * random.standard_normal(count)).astype(np.float32)
    discounts, weights = np.full(count, 0.9, np.float32), np.ones(count, np.float32)
    actions = random.integers(0, ACTIONS, count)
    return Batch(observations, following, actions, rewards, discounts, weights, np.zeros(count, np.float32))


def learn(learner: SkillDQNLearner, batch: Batch, decisions: int = 200) -> None:
    counts = {NUM_MODULE_STEPS_SAMPLED_LIFETIME: {"dodge": decisions}}
    learner.update(batch=as_multi_agent_batch({"dodge": batch}), timesteps=counts)


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


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    strength=st.sampled_from([0.0, 0.01, 1.0, 300.0]),
    free=st.sampled_from([0.0, 0.5, 1.0]),
    tau=st.sampled_from([0.0, 0.01]),
)
def test_a_constrained_update_is_the_same_on_both_paths(seed: int, strength: float, free: float, tau: float) -> None:
    (leader, led), (follower, followed) = (make_updates(path, tau=tau) for path in (AUTOGRAD, CPU_KERNEL))
    led.constrain(drawn(parameters(led), seed, strength, free))
    learn(leader, make_batch(192, seed))
    # It comes with the learner's state.
    follower.set_state(leader.get_state())
    for learner in (leader, follower):
        learn(learner, make_batch(64, seed + 1))
    for name, values in parameters(led).items():
        np.testing.assert_allclose(parameters(followed)[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@BOTH
def test_what_a_mask_holds_stays_bit_identical_in_network_and_average(path: str) -> None:
    learner, updates = make_updates(path, averaged_fraction=0.5)
    # Adam has moments by which it would move on.
    learn(learner, make_batch(256, 0))
    before, constraint = parameters(updates), drawn(parameters(updates), 1)
    updates.constrain(constraint)
    for call, decisions in enumerate((300, 600, 800, 1_000)):
        learn(learner, make_batch(256, call), decisions)
    assert constraint.mask is not None
    played, last = updates.playing_weights(), parameters(updates)
    assert any((played[name] != last[name]).any() for name in last)
    for name, values in before.items():
        held = constraint.mask[name] == 0.0
        for now in (last, played):
            np.testing.assert_array_equal(now[name][held], values[held])
            assert (now[name][~held] != values[~held]).mean() > 0.95


@BOTH
def test_the_first_step_goes_the_way_of_the_pulled_gradient(path: str) -> None:
    # Adam's first step is the learning rate against the sign of what it sees, which here is the pull almost alone.
    learner, updates = make_updates(path, learning_rate=1e-3)
    before = parameters(updates)
    ahead = {name: np.where(np.indices(values.shape).sum(axis=0) % 2, 1.0, -1.0) for name, values in before.items()}
    anchor = {name: values + ahead[name] for name, values in before.items()}
    updates.constrain(Constraint(anchor=anchor, strength=1e6))
    learn(learner, make_batch(64, 0))
    for name, values in parameters(updates).items():
        np.testing.assert_allclose(values - before[name], 1e-3 * ahead[name], rtol=1e-2)


@BOTH
def test_a_strong_pull_keeps_a_network_at_its_anchor(path: str) -> None:
    distances = []
    for strength in (0.0, 1e4):
        learner, updates = make_updates(path)
        before = parameters(updates)
        updates.constrain(Constraint(anchor=before, strength=strength))
        for call in range(20):
            learn(learner, make_batch(640, call))
        distances.append(max(abs(values - before[name]).max() for name, values in parameters(updates).items()))
    assert distances[1] < 0.1 * distances[0]


@BOTH
def test_a_constraint_that_changes_nothing_and_a_lifted_one_leave_the_bits(path: str) -> None:
    (plain, one), (neutral, other), (lifted, third) = (make_updates(path) for _ in range(3))
    network = parameters(other)
    other.constrain(Constraint(anchor=network, mask={name: np.ones(part.shape) for name, part in network.items()}))
    third.constrain(drawn(parameters(third), 3))
    third.constrain(None)
    for learner in (plain, neutral, lifted):
        learn(learner, make_batch(640, 4))
    for name, values in parameters(one).items():
        np.testing.assert_array_equal(parameters(other)[name], values)
        np.testing.assert_array_equal(parameters(third)[name], values)


def test_a_trained_head_is_constrained_by_its_own_names() -> None:
    learner, updates = make_updates(None, dueling=True, quantiles=3)
    before = parameters(updates)
    assert "q_network.4.advantage.weight" in before
    mask = {name: np.full(values.shape, name == "q_network.0.bias") for name, values in before.items()}
    updates.constrain(Constraint(mask=mask))
    learn(learner, make_batch(256, 0))
    changed = [name for name, values in parameters(updates).items() if (values != before[name]).any()]
    assert changed == ["q_network.0.bias"]
    with pytest.raises(SoulsGraphError, match=r"expected the anchor of .*advantage.*, found .*; use that of"):
        updates.constrain(Constraint(anchor=updates.module.weights(), strength=1.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strength": -1.0}, r"expected strength with a finite number of at least 0, found -1\.0"),
        ({"strength": np.inf}, "expected strength with a finite number"),
        ({"importance": {"a": np.ones(2)}}, "expected importance with an anchor with it, found"),
        ({"importance": {"a": -np.ones(2)}, "anchor": {"a": np.ones(2)}}, "importance of a with numbers of at least 0"),
        ({"anchor": {"a": np.array([1.0, np.nan])}}, "anchor of a with finite numbers"),
        ({"mask": {"a": np.array([1.0, 0.5])}}, r"mask of a with 0 and 1 only, found 0\.5"),
    ],
)
def test_what_no_update_could_go_by_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SoulsGraphError, match=message):
        Constraint(**fields)


def test_other_names_and_shapes_are_refused() -> None:
    _, updates = make_updates(CPU_KERNEL)
    weights = parameters(updates)
    for wrong in ({**weights, "more": np.ones(1)}, {**weights, "q_network.0.bias": np.ones(3)}):
        with pytest.raises(SoulsGraphError, match="constraint: expected the mask of"):
            updates.constrain(Constraint(mask={name: np.ones(values.shape) for name, values in wrong.items()}))
    assert updates.constraint is None


def make_stage(path: str, **method: Any) -> SkillDQN:
    numbers = DQNHyperparameters(budget=1_200, buffer_size=400, target_update_interval=400, **method)
    config = SkillDQN.get_default_config()
    config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
    stage = config.stage([SKILL], numbers, 128, path, seed=1).build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


def run(stage: SkillDQN, decisions: int = 1_200) -> None:
    while stage.decisions < decisions:
        stage.training_step()


@BOTH
def test_a_resumed_stage_has_its_constraint_and_statistics_bit_for_bit(path: str, tmp_path: Path) -> None:
    stages = [make_stage(path, averaged_fraction=0.6) for _ in range(2)]
    state = {"mean": np.full(SIZE, 2.0), "variance": np.full(SIZE, 9.0), "count": 50.0}
    for stage in stages:
        weights = stage.weights("dodge")
        network = {name: values for name, values in weights.items() if name not in (MEAN, DEVIATION)}
        stage.load_normalizer("dodge", state)
        stage.freeze_normalizer("dodge")
        stage.constrain("dodge", drawn(network, 8))
        run(stage, 600)
    stages[0].save_checkpoint(str(tmp_path))
    resumed = make_stage(path, averaged_fraction=0.6)
    resumed.load_checkpoint(str(tmp_path))
    for stage in (stages[1], resumed):
        run(stage)
    constraint = resumed.learner.learning["dodge"].constraint
    assert constraint is not None
    assert constraint.strength == 0.5
    played, expected = resumed.weights("dodge"), stages[1].weights("dodge")
    for name, values in expected.items():
        np.testing.assert_array_equal(played[name], values, err_msg=name)
    np.testing.assert_array_equal(played[MEAN], 2.0)
    assert resumed.training["dodge"].normalizer.count == 50.0


def test_without_a_constraint_the_state_names_none() -> None:
    stage = make_stage(CPU_KERNEL)
    run(stage, 300)
    assert "constraint" not in stage.get_training_state()["learner"]["dodge"]
    assert stage.training["dodge"].normalizer.count > 300


def test_only_a_module_that_learns_is_constrained() -> None:
    stage = make_stage(CPU_KERNEL)
    for call in (stage.freeze_normalizer, lambda module: stage.constrain(module, None)):
        with pytest.raises(UnknownNameError, match="unknown module that learns: expected one of dodge; found 'dogde'"):
            call("dogde")


def test_weights_that_are_loaded_after_a_mask_stay_too() -> None:
    learner, updates = make_updates(CPU_KERNEL)
    updates.constrain(Constraint(mask={name: np.zeros(values.shape) for name, values in parameters(updates).items()}))
    loaded = {name: values + np.float32(0.1) for name, values in updates.module.weights().items()}
    updates.module.load_weights(loaded)
    learn(learner, make_batch(128, 0))
    for name, values in parameters(updates).items():
        np.testing.assert_array_equal(values, loaded[name])


@BOTH
def test_a_task_that_was_packed_plays_on_bit_for_bit_after_the_next_one(path: str) -> None:
    first = make_stage(path, averaged_fraction=0.6)
    run(first)
    kept, weights = free_weights(first.weights("dodge"), all_free(first.weights("dodge")), 0.4)
    second = make_stage(path, averaged_fraction=0.6)
    second.load_weights({"dodge": weights})
    second.load_normalizer("dodge", first.training["dodge"].normalizer.get_state())
    second.freeze_normalizer("dodge")
    second.constrain("dodge", Constraint(mask=still_free(all_free(weights), kept)))
    run(second)
    learned = second.weights("dodge")
    assert (learned["q_network.2.weight"] != weights["q_network.2.weight"]).mean() > 0.5
    for name, values in task_weights(learned, [kept]).items():
        np.testing.assert_array_equal(values, weights[name], err_msg=name)


def test_importance_of_what_was_learned_keeps_its_values_while_another_task_is_learned() -> None:
    first = make_stage(CPU_KERNEL)
    run(first)
    replay, anchor = first.training["dodge"].replay, first.weights("dodge")
    assert isinstance(replay, ReplayBuffer)
    seen = replay.reserve(300, np.random.default_rng(0)).observations
    importance, before, moved = fisher_importance(anchor, seen), q_values(anchor, seen, 10.0), []
    for strength in (0.0, 1e5):
        learner, updates = make_updates(CPU_KERNEL, learning_rate=1e-3)
        updates.module.load_weights(anchor)
        updates.constrain(Constraint(importance, anchor, strength))
        for call in range(20):
            learn(learner, make_batch(640, call))
        moved.append(float(np.abs(q_values(updates.module.weights(), seen, 10.0) - before).mean()))
    assert moved[1] < 0.3 * moved[0]
