"""`bench train`: skill steps per CPU second, ours beside stable-baselines3's DQN and, at one lane, stock RLlib's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from stable_baselines3 import DQN

from soulsgraph.bench.speed import Measurement, interleave
from soulsgraph.paper.stable_baselines import make_dqn
from soulsgraph_clusters.env_runner import SkillGraphEnvRunner
from soulsgraph_clusters.session import connect
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillVectorEnv, upstream_of
from soulsgraph_envs.skills import make_skill, practice_ground
from soulsgraph_policies.agent import NetworkController
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.hyperparameters import DQNHyperparameters, find_preset, skill_hyperparameters
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks

_ENV = "soulsgraph-skill-graph"
_FRAGMENT = 16


class StockDQN:
    """Train one skill of the graph with stock RLlib, the others in `policies` but not in `policies_to_train`.

    RLlib's own filter normalises observations. It counts steps in control ticks and trains after sixteen,
    because its episodes cannot be cut while a skill is yet to end its first decision; `training_intensity` is set
    again each time, to the updates that the trained skill's decisions call for.
    """

    def __init__(self, skill: str, scenario: str, numbers: DQNHyperparameters) -> None:
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)
        skills = (*upstream_of(skill), skill)
        register_env(_ENV, lambda _: SkillGraphEnv(skills, scenario))
        config = (
            DQNConfig()
            .environment(_ENV)
            .env_runners(
                num_env_runners=0,
                rollout_fragment_length=_FRAGMENT,
                env_to_module_connector=lambda *_, **__: MeanStdFilter(multi_agent=True),
            )
            .multi_agent(
                policies=set(skills), policy_mapping_fn=lambda agent, *_, **__: agent, policies_to_train=[skill]
            )
            .rl_module(
                model_config=DefaultModelConfig(
                    fcnet_hiddens=list(numbers.hidden_sizes), fcnet_activation="relu", head_fcnet_hiddens=[]
                )
            )
            .training(
                lr=numbers.learning_rate,
                gamma=numbers.discount,
                train_batch_size_per_learner=numbers.batch_size,
                num_steps_sampled_before_learning_starts=numbers.learning_starts,
                target_network_update_freq=numbers.target_period,
                grad_clip=numbers.max_gradient_norm,
                double_q=False,
                dueling=False,
                n_step=1,
                replay_buffer_config={"type": "MultiAgentEpisodeReplayBuffer", "capacity": numbers.replay_capacity},
            )
            .debugging(seed=0)
        )
        self._algorithm = config.build_algo()
        self._skill, self._numbers = skill, numbers

    @property
    def decisions(self) -> int:
        """Decisions of the trained skill so far."""
        return int(self._algorithm.local_replay_buffer.get_num_timesteps(self._skill))

    @property
    def updates(self) -> int:
        """Updates of the trained skill so far."""
        ((_, optimizer),) = self._algorithm.learner_group._learner.get_optimizers_for_module(self._skill)
        return max((int(state["step"]) for state in optimizer.state.values()), default=0)

    def warm_up(self) -> None:
        """Train until updates are due: RLlib takes one in every training step, even before the learning start."""
        while self._numbers.updates_owed(self.decisions, self.updates) < 1:
            self.train(1)

    def train(self, training_steps: int) -> None:
        """Run this number of RLlib's training steps, of 16 ticks each."""
        for _ in range(training_steps):
            owed = max(self._numbers.updates_owed(self.decisions, self.updates), 1)
            config = self._algorithm.config.copy(copy_frozen=False)
            # In rows of batches for every tick.
            self._algorithm.config = config.training(training_intensity=owed * self._numbers.batch_size / _FRAGMENT)
            self._algorithm.config.freeze()
            self._algorithm.training_step()

    def close(self) -> None:
        """Stop the algorithm."""
        self._algorithm.stop()


_BUDGET, _EXPLORATION = 1_000_000, 0.05
_SCENARIO = "iudex-phase1"
#: Decisions before the clocks start: past the learning start, with everything compiled.
_WARM_UP = 2_000
#: Its training steps in a round: it is some hundred times slower.
_STOCK_STEPS = 8


def bench_training(skill: str, lanes: int, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Measure one skill at one number of lanes; `steps` decisions a round on either side."""
    torch.set_num_threads(1)
    # The share of random actions changes how long decisions take: it is the same on both sides.
    numbers = replace(skill_hyperparameters(_BUDGET), exploration_initial=_EXPLORATION)
    with connect():
        ours, theirs = _ours(skill, lanes, numbers), _theirs_like(skill, lanes, numbers)
        algorithm, model = ours, theirs(ours)
        contenders = [
            _contender(Measurement("soulsgraph", "skill steps"), *_train_ours(algorithm, steps)),
            _contender(Measurement("stable-baselines3", "skill steps"), *_train_theirs(model, steps)),
        ]
        stock = StockDQN(skill, _SCENARIO, numbers) if lanes == 1 else None
        if stock:
            contenders.append(_contender(Measurement("stock RLlib DQN", "skill steps"), *_train_stock(stock)))
        interleave(rounds, [run for run, _ in contenders])
        algorithm.stop()
        if stock:
            stock.close()
    return [finish() | {"skill": skill, "lanes": lanes} for _, finish in contenders]


def _ours(skill: str, lanes: int, numbers: DQNHyperparameters) -> SkillDQN:
    skills = tuple(make_skill(name) for name in (*upstream_of(skill), skill))
    scenario = practice_ground(load_scenario(_SCENARIO), skills[-1])
    preset = find_preset("paper" if lanes == 1 else "fast")
    config = SkillDQN.get_default_config().stage(skills, numbers, preset.decisions_per_round, seed=0)
    config = config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_env_runners=0)
    algorithm: SkillDQN = config.environment(env_config={"scenario": scenario, "lanes": lanes}).build_algo()
    return algorithm


def _theirs_like(skill: str, lanes: int, numbers: DQNHyperparameters) -> Callable[[SkillDQN], DQN]:
    def make(algorithm: SkillDQN) -> DQN:
        scenario = practice_ground(load_scenario(_SCENARIO), make_skill(skill))
        chain = [
            FrozenNetwork.of(make_skill(name), scenario, algorithm.weights(name), numbers.observation_clip)
            for name in upstream_of(skill)
        ]
        plays = [*range(len(chain)), -1]
        env = SkillVectorEnv(lanes, skill, _SCENARIO, NetworkController(FusedNetworks(chain, plays)))
        return make_dqn(env, numbers, seed=0, gradient_steps=lanes)

    return make


Trainer = tuple[Callable[[], None], Callable[[], int], Callable[[], int]]


def _train_ours(algorithm: SkillDQN, steps: int) -> Trainer:
    def train() -> None:
        goal = algorithm.decisions + steps
        while algorithm.decisions < goal:
            algorithm.train()

    while algorithm.decisions < _WARM_UP:
        algorithm.train()
    return train, lambda: algorithm.decisions, lambda: algorithm.updates


def _train_theirs(model: DQN, steps: int) -> Trainer:
    model.learn(_WARM_UP, log_interval=None)

    def train() -> None:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)

    return train, lambda: int(model.num_timesteps), lambda: int(model._n_updates)


def _train_stock(stock: StockDQN) -> Trainer:
    stock.warm_up()
    return lambda: stock.train(_STOCK_STEPS), lambda: stock.decisions, lambda: stock.updates


def _contender(
    measurement: Measurement, train: Callable[[], None], steps: Callable[[], int], updates: Callable[[], int]
) -> tuple[Callable[[], None], Callable[[], dict[str, Any]]]:
    first_step, first_update = steps(), updates()

    def run() -> None:
        with measurement.round(steps):
            train()

    def finish() -> dict[str, Any]:
        measurement.notes["steps_per_update"] = (steps() - first_step) / (updates() - first_update)
        return measurement.to_dict()

    return run, finish
