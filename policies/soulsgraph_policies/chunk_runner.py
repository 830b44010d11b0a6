"""The base of `SkillDQN`'s env runners: what RLlib asks of a runner, around a sampler of chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.actor_manager import FaultTolerantActorManager
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, NUM_MODULE_STEPS_SAMPLED_LIFETIME

from soulsgraph_policies.inference import Weights
from soulsgraph_policies.sampler import Chunk
from soulsgraph_policies.stage_config import SkillDQNConfig


class ChunkRunner(EnvRunner, Checkpointable):
    """Hold the skills' modules and answer RLlib; a subclass opens the game and samples.

    `policy_mapping_fn` is asked once, here, which module plays each skill. Beside remote runners the driver keeps a
    runner of its own that only holds the weights, so the game is opened in `make_env`, which is called where sampling
    happens and nowhere else.
    """

    config: SkillDQNConfig

    def __init__(self, *, config: SkillDQNConfig, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        #: The module that plays each skill, by skill.
        self.modules: Mapping[str, str] = self.config.modules_of_skills()
        #: Decisions of each sampled module that the learner has received from all runners.
        self.decisions: dict[str, int] = dict.fromkeys(self.config.sampled_modules, 0)
        self._without_weights = set(self.get_spaces())
        spec = self.config.get_multi_rl_module_spec(inference_only=True)
        # RLlib asks for the light modules only where it makes the specs of single modules itself.
        spec.inference_only = True
        self.module: MultiRLModule = spec.build()
        self._weights: dict[str, Weights] = {
            name: self.module[name].unwrapped().weights() for name in self.get_spaces()
        }
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
        """Return one chunk in a list: transitions, at most `config.decisions_per_sample` of each module.

        A real-time game may have none in time: then an empty list, or a chunk that notes why.
        """

    @abstractmethod
    def weights_changed(self, modules: Collection[str]) -> None:
        """Play by the new `weights` of `modules` from now on, exploring as `decisions` tells.

        The first call names every module: a runner that Ray has restarted plays by nothing but what it was given.
        """

    def get_training_state(self) -> dict[str, Any]:
        """Return what the next chunk depends on, except networks and `decisions`, as nested arrays and plain values."""
        raise NotImplementedError

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`."""
        raise NotImplementedError

    def weights(self, module: str) -> Weights:
        """Return a module's weights and normaliser; the arrays share its memory."""
        return dict(self._weights[module])

    def played_weights(self, skill: str) -> Weights:
        """Return the weights by which a skill is played, wherever a subclass keeps its own copy of them."""
        return self.weights(self.modules[skill])

    def get_spaces(self) -> dict[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]]:
        """Return the observation and action space of every module."""
        return self.config.module_spaces()

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
        """Return what RLlib brings another runner up to date with: modules and the counts of decisions."""
        state: dict[str, Any] = {
            NUM_ENV_STEPS_SAMPLED_LIFETIME: sum(self.decisions.values()),
            NUM_MODULE_STEPS_SAMPLED_LIFETIME: dict(self.decisions),
        }
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = {module: self.weights(module) for module in self.get_spaces()}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Set weights (all or some modules) and the counts of decisions."""
        self.decisions |= state.get(NUM_MODULE_STEPS_SAMPLED_LIFETIME, {})
        given = state.get(COMPONENT_RL_MODULE, {})
        for module, weights in given.items():
            self._load(module, weights)
        incomplete = bool(self._without_weights)
        self._without_weights -= given.keys()
        if self.samples and not self._without_weights:
            self.weights_changed(tuple(self.get_spaces()) if incomplete else tuple(given))

    def _load(self, module: str, weights: Weights) -> None:
        own = self._weights[module]
        if weights.keys() == own.keys() and all(own[name].shape == values.shape for name, values in weights.items()):
            # Through torch it would take ten times as long, every few decisions.
            for name, values in weights.items():
                own[name][...] = values
        else:  # Which says what does not fit.
            self.module[module].unwrapped().load_weights(weights)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the constructor's arguments."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the parts that RLlib checkpoints by themselves."""
        return [(COMPONENT_RL_MODULE, self.module)]


class LocalRunnerGroup(EnvRunnerGroup):
    """One runner in the driver's process, and no Ray.

    RLlib's own constructor puts the configuration into Ray's object store for remote runners, even if there are none.
    """

    def __init__(self, config: SkillDQNConfig) -> None:
        self.env_runner_cls = config.env_runner_cls
        self._remote_config = config
        self._worker_manager = FaultTolerantActorManager(init_id=1)
        self._ignore_ray_errors_on_env_runners = False
        self._num_env_runners_dropped_lifetime = 0
        self._local_env_runner = config.env_runner_cls(config=config, worker_index=0)
