"""RLlib's own DQN, nothing overridden, on the multi-agent face of the graph."""

from __future__ import annotations

import logging

from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from soulsgraph_envs.multi_agent_env import SkillGraphEnv
from soulsgraph_envs.skill_env import upstream_of
from soulsgraph_policies.hyperparameters import DQNHyperparameters

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
