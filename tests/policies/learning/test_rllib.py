"""What users of RLlib write: its own configurations on `SkillGraphEnv`, and its own scheme of who plays and learns."""

import copy
from collections.abc import Iterator

import numpy as np
import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from fakes.stages import differs
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.learning.module import QNetworkModule

TRAINED = ["dodge", "heal_attack"]


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with connect("local", num_cpus=1):
        yield


def on_the_graph(config: AlgorithmConfig) -> AlgorithmConfig:
    return (
        config.environment(SkillGraphEnv, env_config={"skills": SKILL_NAMES, "scenario": "iudex-phase1"})
        .multi_agent(
            policies=set(SKILL_NAMES), policy_mapping_fn=lambda agent, *_, **__: agent, policies_to_train=TRAINED
        )
        .env_runners(num_env_runners=0, rollout_fragment_length=32)
        .reporting(min_sample_timesteps_per_iteration=64, min_time_s_per_iteration=0)
        .debugging(seed=0, log_level="ERROR")
    )


def with_our_modules() -> DQNConfig:
    buffer = {"type": "MultiAgentEpisodeReplayBuffer", "capacity": 1_000}
    config = on_the_graph(DQNConfig()).training(
        replay_buffer_config=buffer, train_batch_size_per_learner=16, num_steps_sampled_before_learning_starts=0
    )
    specs = {
        name: RLModuleSpec(QNetworkModule, model_config={"exploration_rate": 0.2 if name in TRAINED else 0.0})
        for name in SKILL_NAMES
    }
    return config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


def ppo() -> PPOConfig:
    return on_the_graph(PPOConfig()).training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)


@pytest.mark.parametrize("make", [with_our_modules, ppo])
def test_one_iteration_changes_the_listed_skills_weights_and_no_others(make) -> None:
    algorithm = make().build_algo()
    try:
        modules = algorithm.learner_group._learner.module
        before = {name: copy.deepcopy(modules[name].state_dict()) for name in SKILL_NAMES}
        algorithm.train()
        now = {name: modules[name].state_dict() for name in SKILL_NAMES}
        changed = {name for name in SKILL_NAMES if differs(now[name], before[name])}
        assert changed == set(TRAINED)
        for name in TRAINED:  # The runner plays by what was learned.
            played = algorithm.get_module(name).state_dict()
            assert all(np.array_equal(played[key], now[name][key]) for key in played)
    finally:
        algorithm.stop()
