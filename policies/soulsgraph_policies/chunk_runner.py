"""The base of `SkillDQN`'s env runners: what RLlib asks of a runner, around a sampler of chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Any

import gymnasium
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from soulsgraph_policies.stage_config import SkillDQNConfig
from soulsgraph_policies.transitions import Chunk
from soulsgraph_policies.weights import Weights


class ChunkRunner(EnvRunner, Checkpointable):
    """Hold the skills' modules and answer RLlib; a subclass opens the game and samples.

    Beside remote runners the driver keeps a runner of its own that only holds the weights, so the
    game is opened in `make_env`, which is called only where sampling happens.
    """

    config: SkillDQNConfig

    def __init__(self, *, config: SkillDQNConfig, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        #: Decisions of the trained skill that the learner has received from all runners.
        self.decisions = 0
        spaces = self.get_spaces()
        self._without_weights = set(spaces)
        self._skills = tuple(spaces)
        spec = self.config.get_multi_rl_module_spec(spaces=spaces, inference_only=True)
        # RLlib asks for the light modules only where it makes the specs of single modules itself.
        spec.inference_only = True
        self.module: MultiRLModule = spec.build()
        if self.samples:
            self.make_env()

    @property
    def samples(self) -> bool:
        """Whether this runner samples: every remote one does, the driver's own only without remote ones."""
        return bool(self.worker_index) or not self.config.num_env_runners

    @abstractmethod
    def make_env(self) -> None:
        """Open the game and make everything that sampling needs but the networks."""

    @abstractmethod
    def sample(self, **kwargs: Any) -> list[Chunk]:
        """Return one chunk of 1 to `config.decisions_per_sample` transitions, in a list.

        A real-time game may have none in time: then an empty list, or a chunk that notes why.
        """

    @abstractmethod
    def weights_changed(self, skills: Collection[str]) -> None:
        """Play `skills` by their new `weights` from now on, exploring at the rate that `decisions` determines.

        The first call names every skill, so that a runner restarted by Ray gets all weights.
        """

    def get_training_state(self) -> dict[str, Any]:
        """Return what the next chunk depends on, except networks and `decisions`, as nested arrays and plain values."""
        raise NotImplementedError

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        raise NotImplementedError

    def weights(self, skill: str) -> Weights:
        """Return a skill's weights and normaliser; the arrays share the module's memory."""
        weights: Weights = self.module[skill].unwrapped().weights()
        return weights

    def played_weights(self, skill: str) -> Weights:
        """Return the weights by which a skill is played; a subclass may keep its own copy of them."""
        return self.weights(skill)

    def get_spaces(self) -> dict[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]]:
        """Return the observation and action space of every module."""
        return self.config.skill_spaces()

    def assert_healthy(self) -> None:
        """Raise if the runner was not built."""
        assert self.module is not None

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the state that RLlib copies to other runners: modules and the count of decisions."""
        state: dict[str, Any] = {NUM_ENV_STEPS_SAMPLED_LIFETIME: self.decisions}
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = {skill: self.weights(skill) for skill in self._skills}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Set weights (of all or some modules) and the count of decisions."""
        self.decisions = int(state.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, self.decisions))
        given = state.get(COMPONENT_RL_MODULE, {})
        for skill, weights in given.items():
            self.module[skill].unwrapped().load_weights(weights)
        incomplete = bool(self._without_weights)
        self._without_weights -= given.keys()
        if self.samples and not self._without_weights:
            self.weights_changed(self._skills if incomplete else tuple(given))

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the constructor's arguments."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the parts that RLlib checkpoints by themselves."""
        return [(COMPONENT_RL_MODULE, self.module)]
