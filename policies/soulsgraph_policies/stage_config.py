"""RLlib's configuration of one stage: the trained skill, those upstream, hyperparameters, lanes and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import Mirror, Skill
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learner import AUTOGRAD, CPU_KERNEL, UPDATE_PATHS, SkillDQNLearner
from soulsgraph_policies.module import QNetworkModule

Spaces = dict[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]]

#: One `train()` call goes on to the next multiple of so many decisions.
DECISIONS_PER_ITERATION = 1000


def skill_of_agent(agent: str, *_: Any, **__: Any) -> str:
    """Map an agent to its module: every skill is an agent with a module of its own."""
    return agent


class SkillDQNConfig(DQNConfig):
    """Configure one stage: `stage` sets what is trained, all else is RLlib's own.

    Made by `SkillDQN.get_default_config()`.
    """

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.trained = ""
        self.skills: tuple[Skill, ...] = ()
        self.hyperparameters = DQNHyperparameters(budget=1, replay_capacity=1)
        self.decisions_per_round = 1
        self.update_path = CPU_KERNEL
        self.mirror: Mirror | None = None
        # Runners have no connectors whose state RLlib would merge; `SkillDQN` itself hands out the weights.
        self._dont_auto_sync_env_runner_states = True
        self.env_runners(merge_env_runner_states=False, broadcast_env_runner_states=False)
        self.learners(num_learners=0, learner_class=SkillDQNLearner)
        self.fault_tolerance(
            restart_failed_env_runners=True,
            env_runner_health_probe_timeout_s=0.5,
            env_runner_restore_timeout_s=30.0,
            delay_between_env_runner_restarts_s=5.0,
        )
        self.reporting(min_time_s_per_iteration=None)

    def stage(
        self,
        skills: Sequence[Skill],
        hyperparameters: DQNHyperparameters,
        decisions_per_round: int,
        update_path: str | None = None,
        mirror: Mirror | None = None,
    ) -> Self:
        """Train the last of `skills`, the others frozen; `decisions_per_round` lie at most between updates.

        Call `debugging(seed=...)` first: the initial weights come from the seed. By default the compiled update
        path is used where possible. `mirror` is the trained skill's, for mirrored transitions.

        Raises:
            UnknownNameError: for an unknown update path.
            SoulsGraphError: if the hyperparameters ask for mirrored transitions and there is no mirror.
        """
        compiled = hyperparameters.plain_head and len(hyperparameters.hidden_sizes) == 2
        path = update_path or (CPU_KERNEL if compiled else AUTOGRAD)
        if path not in UPDATE_PATHS:
            raise UnknownNameError("update path", path, UPDATE_PATHS)
        if hyperparameters.mirrored and mirror is None:
            raise SoulsGraphError(f"stage of {skills[-1].name}: expected a mirror, found none; give the skill's own.")
        self.skills, self.trained = tuple(skills), skills[-1].name
        self.hyperparameters, self.update_path = hyperparameters, path
        self.mirror = mirror if hyperparameters.mirrored else None
        self.decisions_per_round = decisions_per_round
        self._describe_dqn()
        policies = {skill.name for skill in skills}
        self.multi_agent(policies=policies, policy_mapping_fn=skill_of_agent, policies_to_train=[self.trained])
        specs = {
            name: RLModuleSpec(
                module_class=QNetworkModule,
                observation_space=observation,
                action_space=action,
                model_config=self._network_config(index),
            )
            for index, (name, (observation, action)) in enumerate(self.skill_spaces().items())
        }
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        return self

    def _describe_dqn(self) -> None:
        numbers = self.hyperparameters
        self.training(
            lr=numbers.learning_rate,
            gamma=numbers.discount,
            grad_clip=numbers.max_gradient_norm,
            grad_clip_by="global_norm",
            train_batch_size_per_learner=numbers.batch_size,
            target_network_update_freq=numbers.target_period,
            num_steps_sampled_before_learning_starts=numbers.learning_starts,
            double_q=numbers.double,
            dueling=numbers.dueling,
            n_step=numbers.n_step,
        )

    def _network_config(self, index: int) -> dict[str, Any]:
        numbers = self.hyperparameters
        seed = int(np.random.SeedSequence([self.seed or 0, index]).generate_state(1)[0])
        config = {"hidden_sizes": numbers.hidden_sizes, "observation_clip": numbers.observation_clip, "seed": seed}
        trained = index == len(self.skills) - 1
        return config | {"head": (numbers.quantiles, numbers.dueling)} if trained else config

    def skill_spaces(self) -> Spaces:
        """Return the observation and action space of every skill, in the stage's order."""
        return {
            skill.name: (
                gymnasium.spaces.Box(-np.inf, np.inf, (skill.observation.size,), np.float32),
                gymnasium.spaces.Discrete(len(skill.actions)),
            )
            for skill in self.skills
        }

    @property
    def decisions_per_sample(self) -> int:
        """The most transitions that one runner's `sample` may give."""
        runners = max(int(self.num_env_runners), 1)
        return max(self.decisions_per_round // runners, 1)
