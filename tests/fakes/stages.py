"""Stages, learners, and what they learn from, of drawn numbers: all that tests of learning begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_SAMPLED_LIFETIME

from fakes.learning import DrawingRunner
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.learner import SkillDQNLearner
from soulsgraph_policies.learning.replay import Batch
from soulsgraph_policies.learning.sampler import Transitions
from soulsgraph_policies.learning.stage_config import SkillDQNConfig
from soulsgraph_policies.learning.update_kernel import UpdateMetrics

Numbers = DQNHyperparameters | Mapping[str, DQNHyperparameters]


def configured(
    skills: Sequence[Skill],
    numbers: Numbers,
    lanes: int = 32,
    steps_per_round: int = 128,
    paces: Mapping[str, int] | None = None,
    **stage: Any,
) -> SkillDQNConfig:
    """Return the configuration of a stage that `DrawingRunner` plays, of seed 1 unless another is named."""
    config = SkillDQN.get_default_config().stage(skills, numbers, steps_per_round, **{"seed": 1, **stage})
    config.env_runners(env_runner_cls=DrawingRunner, num_envs_per_env_runner=lanes)
    config.environment(env_config={"paces": paces or {}})
    return config


def built(config: SkillDQNConfig) -> SkillDQN:
    """Return the algorithm of a configuration."""
    stage = config.build_algo()
    assert isinstance(stage, SkillDQN)
    return stage


def run(stage: SkillDQN, decisions: int | None = None) -> SkillDQN:
    """Train round by round until the stage has this number of decisions, by default to its end."""
    while not stage.finished and (decisions is None or stage.decisions < decisions):
        stage.training_step()
    return stage


def assert_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Compare arrays by name bit for bit."""
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


def differs(first: Weights, second: Weights) -> bool:
    """Return whether any weight is another."""
    return any((values != second[name]).any() for name, values in first.items())


def make_learner(skills: Sequence[Skill], numbers: DQNHyperparameters, path: str | None) -> SkillDQNLearner:
    """Return a learner of the last of some skills, without a stage around it."""
    config = SkillDQN.get_default_config()
    config.stage(skills, numbers, 128, path, seed=5)
    learner = SkillDQNLearner(config=config, module_spec=config.rl_module_spec)
    learner.build()
    return learner


def update(learner: SkillDQNLearner, skill: str, batch: Batch, decisions: int = 0) -> UpdateMetrics:
    """Learn from a batch of a skill, at a count of decisions received."""
    counts = {NUM_MODULE_STEPS_SAMPLED_LIFETIME: {skill: decisions}}
    return learner.update(training_data=TrainingData(batch={skill: batch}), timesteps=counts)[skill]


def drawn_batch(skill: Skill, count: int, seed: int, scale: float = 1.0) -> Batch:
    """Return rows whose TD errors lie on both sides of the Huber loss's threshold, some of them terminal."""
    random, size = np.random.default_rng(seed), skill.observation.size
    return Batch(
        observations=random.standard_normal((count, size)).astype(np.float32),
        next_observations=random.standard_normal((count, size)).astype(np.float32),
        actions=random.integers(0, len(skill.actions), count),
        rewards=(random.standard_normal(count) * scale).astype(np.float32),
        discounts=np.where(random.random(count) < 0.2, 0.0, 0.99).astype(np.float32),
        weights=np.ones(count, np.float32),
        margins=np.zeros(count, np.float32),
    )


def drawn_transitions(count: int, seed: int = 0, size: int = 3, **columns: Any) -> Transitions:
    """Return decisions of one lane and episode; `columns` replaces some, a number standing for equal ones."""
    random = np.random.default_rng(seed)
    observed = random.standard_normal((count + 1, size)).astype(np.float32)
    drawn: dict[str, Any] = {
        "observations": observed[:-1],
        "next_observations": observed[1:],
        "actions": random.integers(0, 2, count),
        "rewards": random.standard_normal(count).astype(np.float32),
        "terminated": random.random(count) < 0.2,
        "ticks": random.integers(1, 8, count),
        "lanes": np.zeros(count, np.int64),
        "episodes": np.zeros(count, np.int64),
    }
    for name, values in columns.items():
        drawn[name] = np.broadcast_to(np.asarray(values, drawn[name].dtype), drawn[name].shape)
    return Transitions(**drawn)
