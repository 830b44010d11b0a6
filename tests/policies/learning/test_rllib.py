"""What users of RLlib write: its own configurations on `SkillGraphEnv`, and its own scheme of who plays and learns."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.schedulers import ASHAScheduler

from fakes.learning import LinearRunner
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
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


def dqn() -> DQNConfig:
    buffer = {"type": "MultiAgentEpisodeReplayBuffer", "capacity": 1_000}
    return on_the_graph(DQNConfig()).training(
        replay_buffer_config=buffer, train_batch_size_per_learner=16, num_steps_sampled_before_learning_starts=0
    )


def with_our_modules() -> DQNConfig:
    specs = {
        name: RLModuleSpec(QNetworkModule, model_config={"exploration_rate": 0.2 if name in TRAINED else 0.0})
        for name in SKILL_NAMES
    }
    return dqn().rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


def ppo() -> PPOConfig:
    return on_the_graph(PPOConfig()).training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)


@pytest.mark.parametrize("make", [with_our_modules, dqn, ppo])
def test_one_iteration_changes_the_listed_skills_weights_and_no_others(make) -> None:
    algorithm = make().build_algo()
    try:
        modules = algorithm.learner_group._learner.module
        before = {
            name: {key: value.clone() for key, value in modules[name].state_dict().items()} for name in SKILL_NAMES
        }
        algorithm.train()
        changed = {
            name
            for name in SKILL_NAMES
            if any(not torch.equal(value, before[name][key]) for key, value in modules[name].state_dict().items())
        }
        assert changed == set(TRAINED)
        for name in TRAINED:  # the runner plays by what was learned
            played = algorithm.get_module(name).state_dict()
            learned = modules[name].state_dict()
            assert all(np.array_equal(played[key], learned[key]) for key in played)
    finally:
        algorithm.stop()


@pytest.mark.slow
def test_a_grid_of_tunes_trains_by_each_learning_rate_and_its_scheduler_goes_by_the_return(tmp_path: Path) -> None:
    rates = [1e-5, 1e-2]
    config = SkillDQN.get_default_config().training(lr=tune.grid_search(rates))
    config.stage([make_skill("dodge")], DQNHyperparameters(budget=10_000, buffer_size=1_000), 128, seed=0)
    config.env_runners(env_runner_cls=LinearRunner).environment(env_config={"lanes": 32})
    config.debugging(log_level="ERROR")
    tuner = tune.Tuner(
        SkillDQN,
        param_space=config,
        tune_config=tune.TuneConfig(
            metric="env_runners/episode_return_mean", mode="max", scheduler=ASHAScheduler(max_t=3, grace_period=1)
        ),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path), checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True), verbose=0
        ),
    )
    results = tuner.fit()
    assert not results.errors
    by_rate = {result.config["lr"]: result for result in results}
    assert sorted(by_rate) == rates
    for rate, result in by_rate.items():
        assert result.config["own_hyperparameters"]["dodge"].learning_rate == rate
        resumed = SkillDQN.from_checkpoint(result.checkpoint.to_directory())
        assert resumed.decisions == result.metrics["num_env_steps_sampled_lifetime"] >= 1_000
        assert resumed.learner.learning["dodge"].optimizer.param_groups[0]["lr"] == rate
    losses = {result.metrics["learners"]["dodge"]["qf_loss"] for result in results}
    assert len(losses) == 2
    assert results.get_best_result().config["lr"] in rates
