"""Skill steps per CPU second, ours beside stable-baselines3's DQN and, at one lane, stock RLlib's."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from stable_baselines3.common.vec_env import VecEnv

from soulsgraph.paper.stable_baselines import make_dqn
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillVectorEnv, upstream_of
from soulsgraph_envs.skills import SkillOptions, make_skill, training_scenario
from soulsgraph_policies.agents.agent import NetworkController
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import PRESETS, DQNHyperparameters, Preset, skill_hyperparameters
from speed import Contender, UpdateProducts, interleave

_ENV = "soulsgraph-skill-graph"
_FRAGMENT = 16


#: What RLlib's DQN learns by as ours does.
_SHARED = (
    *("lr", "gamma", "train_batch_size_per_learner", "num_steps_sampled_before_learning_starts"),
    *("target_network_update_freq", "grad_clip", "double_q", "n_step"),
)


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
                    fcnet_hiddens=list(numbers.fcnet_hiddens), fcnet_activation="relu", head_fcnet_hiddens=[]
                )
            )
            .training(
                **{name: getattr(numbers, name) for name in _SHARED},
                dueling=False,
                replay_buffer_config={"type": "MultiAgentEpisodeReplayBuffer", "capacity": numbers.capacity},
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
            self._algorithm.config = config.training(
                training_intensity=owed * self._numbers.train_batch_size_per_learner / _FRAGMENT
            )
            self._algorithm.config.freeze()
            self._algorithm.training_step()

    def close(self) -> None:
        """Stop the algorithm."""
        self._algorithm.stop()


BUDGET, EXPLORATION = 1_000_000, 0.05
_SCENARIO, _UNIT = "iudex-phase1", "skill steps"
#: Decisions before the clocks start: past the learning start, with everything compiled.
_WARM_UP = 2_000
#: Its training steps in a round: it is some hundred times slower.
_STOCK_STEPS = 8


def bench_training(skill: str, lanes: int, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Measure one skill at one number of lanes; `steps` decisions a round on either side."""
    compute_on_one_thread()
    # The share of random actions changes how long decisions take: it is the same on both sides.
    numbers = skill_hyperparameters(BUDGET, epsilon=EXPLORATION)
    with connect():
        preset = PRESETS["paper" if lanes == 1 else "fast"]
        ours, stock = make_stage(skill, preset, numbers), StockDQN(skill, _SCENARIO, numbers) if lanes == 1 else None
        contenders = [
            contender_of(ours, steps),
            _theirs(ours, skill, lanes, numbers, steps),
            _limit(skill, numbers, steps),
        ]
        if stock:
            stock.warm_up()
            train = partial(stock.train, _STOCK_STEPS)
            name = "stock RLlib DQN"
            contenders.append(Contender(name, _UNIT, train, lambda: stock.decisions, lambda: stock.updates))
        interleave(rounds, contenders)
        ours.stop()
        if stock:
            stock.close()
    return [contender.to_dict() | {"skill": skill, "lanes": lanes} for contender in contenders]


def make_stage(skill: str, preset: Preset, numbers: DQNHyperparameters, runners: int = 0) -> SkillDQN:
    """Return an algorithm that trains a skill on untrained ones, in this process or in remote runners of a session."""
    skills = tuple(make_skill(name, preset.skill_options(SkillOptions())) for name in (*upstream_of(skill), skill))
    scenario = training_scenario(load_scenario(_SCENARIO), skills[-1])
    config = SkillDQN.get_default_config().stage(skills, numbers, preset.steps_per_round, seed=0)
    config.env_runners(
        env_runner_cls=SkillGraphEnvRunner, num_env_runners=runners, num_envs_per_env_runner=preset.lanes
    )
    algorithm: SkillDQN = config.environment(env_config={"scenario": scenario}).build_algo()
    return algorithm


def contender_of(algorithm: SkillDQN, steps: int, name: str = "soulsgraph") -> Contender:
    """Return training by an algorithm, warm already, `steps` decisions a round."""

    def train(more: int) -> None:
        goal = algorithm.decisions + more
        while algorithm.decisions < goal:
            algorithm.train()

    train(_WARM_UP)
    return Contender(name, _UNIT, partial(train, steps), lambda: algorithm.decisions, lambda: algorithm.updates)


def _limit(skill: str, numbers: DQNHyperparameters, steps: int) -> Contender:
    """Return the updates' matrix products alone, as many as this number of decisions owes."""
    made, rows = make_skill(skill), numbers.train_batch_size_per_learner
    products = UpdateProducts((made.observation.size, *numbers.fcnet_hiddens, len(made.actions)), rows)
    owed = round(rows / numbers.training_intensity)
    train = partial(products.run, steps // owed)
    return Contender("limit: BLAS products", _UNIT, train, lambda: products.done * owed, lambda: products.done)


class SkillVecEnv(VecEnv):
    """The vector environment, with same-step autoreset, in stable-baselines3's own protocol."""

    def __init__(self, env: SkillVectorEnv) -> None:
        # The base class asks for attributes of the lanes at once.
        self._env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """Begin every lane; the first lane's seed, which the base class keeps, is that of all."""
        return self._env.reset(seed=self._seeds[0])[0]

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step every lane; ended lanes report their last observation as `terminal_observation`."""
        observations, rewards, terminated, truncated, info = self._env.step(self._actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(ended):
            infos[lane] = {
                "terminal_observation": info["final_obs"][lane],
                "TimeLimit.truncated": bool(truncated[lane]),
                "won": bool(info["final_info"]["won"][lane]),
                "seconds": float(info["final_info"]["seconds"][lane]),
            }
        return observations, rewards, ended, infos

    def close(self) -> None:
        """Close the vector environment."""
        self._env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment for each lane asked."""
        return [getattr(self._env, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: lanes share one simulator."""
        raise NotImplementedError("lanes share one simulator: attributes of one lane cannot be set")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refuse: lanes share one simulator."""
        raise NotImplementedError("lanes share one simulator: methods of one lane cannot be called")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for every lane: none is wrapped."""
        return [False for _ in self._get_indices(indices)]


def _theirs(ours: SkillDQN, skill: str, lanes: int, numbers: DQNHyperparameters, steps: int) -> Contender:
    """Return stable-baselines3's DQN on top of the same upstream networks."""
    scenario = training_scenario(load_scenario(_SCENARIO), make_skill(skill))
    chain = [
        FrozenNetwork.of(make_skill(name), scenario, ours.weights(name), numbers.observation_clip)
        for name in upstream_of(skill)
    ]
    plays = [*range(len(chain)), -1]
    env = SkillVectorEnv(
        lanes, skill, _SCENARIO, NetworkController(FusedNetworks(chain, plays)), autoreset_mode="SameStep"
    )
    model = make_dqn(SkillVecEnv(env), numbers, seed=0, gradient_steps=lanes)
    model.learn(_WARM_UP, log_interval=None)

    def train() -> None:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)

    return Contender("stable-baselines3", _UNIT, train, lambda: int(model.num_timesteps), lambda: int(model._n_updates))
