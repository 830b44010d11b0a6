"""RLlib's configuration of one stage: which skills learn on top of which, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import gymnasium
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import Mirror, Skill
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learner import AUTOGRAD, CPU_KERNEL, UPDATE_PATHS, SkillDQNLearner
from soulsgraph_policies.module import QNetworkModule

#: Observation and action space.
Spaces = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]

#: One `train()` call ends at the next multiple of this number of decisions.
DECISIONS_PER_ITERATION = 1000


def skill_of_agent(agent: str, *_: Any, **__: Any) -> str:
    """Map an agent to its module: every skill is an agent with a module of its own."""
    return agent


class SkillDQNConfig(DQNConfig):
    """Configure one stage: `stage` sets what is trained, all else is RLlib's own.

    RLlib's `multi_agent` may follow it: `policy_mapping_fn` says which module plays each skill, and `policies_to_train`
    which modules learn: those listed, none of them (an empty list), or all (None). Made by
    `SkillDQN.get_default_config()`.
    """

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.skills: tuple[Skill, ...] = ()
        self.hyperparameters = DQNHyperparameters(budget=1, replay_capacity=1)
        self.own_hyperparameters: dict[str, DQNHyperparameters] = {}
        self.decisions_per_round = 1
        self.update_path: str | None = None
        self.mirrors: dict[str, Mirror] = {}
        self.clips: dict[str, float] = {}
        self.synchronous = False
        self._own_seed: int | None = None
        # Runners have no connectors whose state RLlib would merge; `SkillDQN` itself sends the weights.
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
        # The thread that measures the machine sleeps for up to 0.7 s when a stage ends, and the stage waits for it.
        self.debugging(log_sys_usage=False)

    def stage(
        self,
        skills: Sequence[Skill],
        hyperparameters: DQNHyperparameters | Mapping[str, DQNHyperparameters],
        decisions_per_round: int,
        update_path: str | None = None,
        mirror: Mirror | Mapping[str, Mirror] | None = None,
        seed: int | None = None,
        synchronous: bool = False,
        clips: Mapping[str, float] | None = None,
    ) -> Self:
        """Train the last of `skills`, or those that have hyperparameters by name, the others frozen.

        At most `decisions_per_round` of a skill lie between updates. Without an update path the compiled one is taken
        wherever it can. `mirror` is the last skill's, or each one's by name, for mirrored transitions. A module of
        another name than a skill's learns by the last trained skill's hyperparameters. Everything random starts from
        `seed`, or from that of an earlier `debugging(seed=...)`, by which RLlib also seeds every global generator.
        Remote runners are learned from as they answer; if `synchronous` all together in their order, which repeats.
        `clips` are the observation clips of frozen modules, where they are not those of what learns.

        Raises:
            UnknownNameError: for an unknown update path or skill.
            SoulsGraphError: for a seed that is no integer of at least 0; if there are no hyperparameters, or they ask
                for mirrored transitions without a mirror.
        """
        if update_path is not None and update_path not in UPDATE_PATHS:
            raise UnknownNameError("update path", update_path, UPDATE_PATHS)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0):
            raise SoulsGraphError(f"stage: expected an integer of at least 0 as seed, found {seed!r}; correct `seed`.")
        names = [skill.name for skill in skills]
        own = dict(hyperparameters) if isinstance(hyperparameters, Mapping) else {names[-1]: hyperparameters}
        for name in own:
            if name not in names:
                raise UnknownNameError("skill to train", name, names)
        trained = [name for name in names if name in own]
        if not trained:
            raise SoulsGraphError("stage: expected hyperparameters of a skill to train, found none; name one.")
        self.skills, self.hyperparameters, self.own_hyperparameters = tuple(skills), own[trained[-1]], own
        self.update_path, self.decisions_per_round, self._own_seed = update_path, decisions_per_round, seed
        self.synchronous, self.clips = synchronous, dict(clips or {})
        self.mirrors = dict(mirror) if isinstance(mirror, Mapping) else {} if mirror is None else {names[-1]: mirror}
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
        return self.multi_agent(policies=set(names), policy_mapping_fn=skill_of_agent, policies_to_train=trained)

    def multi_agent(self, **settings: Any) -> Self:
        """Change which module plays each skill, and which modules learn, as RLlib documents it.

        Raises:
            UnknownNameError: for a module to play by, to train or of a clip that is not among `policies`.
            SoulsGraphError: if the mapping fails, a module plays no skill, skills of unequal spaces share one, or
                mirrored transitions lack a mirror.
        """
        super().multi_agent(**settings)
        if self.skills:
            specs = {
                module: RLModuleSpec(QNetworkModule, *spaces, model_config=self._network_config(module, index))
                for module, (spaces, index) in self._described().items()
            }
            for module in self.trained_modules:
                self.mirror_of(module)
            for module in self.clips:
                if module not in self.policies:
                    raise UnknownNameError("module of an observation clip", module, sorted(self.policies))
            self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        return self

    def _network_config(self, module: str, index: int) -> dict[str, Any]:
        numbers = self.hyperparameters_of(module)
        seed = int(np.random.SeedSequence([self.stage_seed or 0, index]).generate_state(1)[0])
        config = {"hidden_sizes": numbers.hidden_sizes, "observation_clip": self.clip_of(module), "seed": seed}
        return config | ({"head": (numbers.quantiles, numbers.dueling)} if module in self.trained_modules else {})

    @property
    def stage_seed(self) -> int | None:
        """What generators of the stage start from; with None the replay draws entropy, the rest starts from 0."""
        return self.seed if self._own_seed is None else self._own_seed

    def module_of(self, skill: str) -> str:
        """Ask `policy_mapping_fn` which module plays a skill.

        Raises:
            SoulsGraphError: if it raises, naming it.
            UnknownNameError: if it names a module that is not among `policies`.
        """
        mapping = self.policy_mapping_fn
        try:
            module: str = mapping(skill, None)
        except Exception as error:
            name = getattr(mapping, "__qualname__", repr(mapping))
            raise SoulsGraphError(
                f"policy_mapping_fn {name}: expected the module that plays {skill}, found {error!r}; correct the "
                "function, which is called with an agent and None."
            ) from error
        if module not in self.policies:
            raise UnknownNameError("module of policy_mapping_fn", module, sorted(self.policies))
        return module

    def modules_of_skills(self) -> dict[str, str]:
        """Return the module that plays each skill, in the stage's order; raises as `module_of` does."""
        return {skill.name: self.module_of(skill.name) for skill in self.skills}

    def skills_of(self, module: str) -> tuple[Skill, ...]:
        """Return the skills that a module plays, in the stage's order."""
        modules = self.modules_of_skills()
        return tuple(skill for skill in self.skills if modules[skill.name] == module)

    @property
    def trained_modules(self) -> tuple[str, ...]:
        """The modules that `policies_to_train` names, all of them if it is None, in the order of the skills they play.

        Raises:
            UnknownNameError: if it names one that plays no skill.
        """
        playing, asked = tuple(dict.fromkeys(self.modules_of_skills().values())), self.policies_to_train
        if asked is None:
            return playing
        if callable(asked):
            return tuple(module for module in playing if asked(module, None))
        for module in asked:
            if module not in playing:
                raise UnknownNameError("module to train", module, playing)
        return tuple(module for module in playing if module in asked)

    @property
    def sampled_modules(self) -> tuple[str, ...]:
        """The modules whose decisions are collected: those that learn, or where none does the last skill's."""
        return self.trained_modules or (self.module_of(self.skills[-1].name),)

    def hyperparameters_of(self, module: str) -> DQNHyperparameters:
        """Return a module's own hyperparameters, or the last trained skill's."""
        return self.own_hyperparameters.get(module, self.hyperparameters)

    def clip_of(self, module: str) -> float:
        """Return the bound of what a module's networks see, plus and minus."""
        own = None if module in self.trained_modules else self.clips.get(module)
        return self.hyperparameters_of(module).observation_clip if own is None else own

    def update_path_of(self, module: str) -> str:
        """Return how a module's updates are computed: by the compiled path wherever it can, unless one was chosen."""
        return self.update_path or (CPU_KERNEL if self.hyperparameters_of(module).compiles else AUTOGRAD)

    def mirror_of(self, module: str) -> Mirror | None:
        """Return the mirror of a module whose hyperparameters ask for mirrored transitions.

        Raises:
            SoulsGraphError: if one of its skills has none, or two of them have different ones.
        """
        if not self.hyperparameters_of(module).mirrored:
            return None
        names = [skill.name for skill in self.skills_of(module)]
        for name in names:
            if name not in self.mirrors:
                raise SoulsGraphError(f"stage of {name}: expected a mirror, found none; give the skill's own.")
        first = self.mirrors[names[0]]
        for name in names[1:]:
            if not all(map(np.array_equal, vars(first).values(), vars(self.mirrors[name]).values())):
                raise SoulsGraphError(
                    f"module {module}: expected one mirror, found different ones of {', '.join(names)}; "
                    "map them to modules of their own."
                )
        return first

    def module_spaces(self) -> dict[str, Spaces]:
        """Return the observation and action space of every module, in the order of the skills they play."""
        return {module: spaces for module, (spaces, _) in self._described().items()}

    def get_multi_rl_module_spec(
        self, *, spaces: Mapping[str, Spaces] | None = None, **kwargs: Any
    ) -> MultiRLModuleSpec:
        """Return RLlib's specification of the modules, whose spaces are known without a runner to ask."""
        return super().get_multi_rl_module_spec(spaces={**self.module_spaces(), **(spaces or {})}, **kwargs)

    def _described(self) -> dict[str, tuple[Spaces, int]]:
        """Return each module's spaces, and the place of the first skill that it plays."""
        found: dict[str, tuple[Spaces, int]] = {}
        for index, (skill, module) in enumerate(zip(self.skills, self.modules_of_skills().values(), strict=True)):
            observation = gymnasium.spaces.Box(-np.inf, np.inf, (skill.observation.size,), np.float32)
            spaces: Spaces = (observation, gymnasium.spaces.Discrete(len(skill.actions)))
            first_spaces, first = found.setdefault(module, (spaces, index))
            if spaces != first_spaces:
                one, other = (f"{seen.shape} and {actions}" for seen, actions in (first_spaces, spaces))
                raise SoulsGraphError(
                    f"module {module}: expected skills of equal spaces, found {self.skills[first].name} with {one} and "
                    f"{skill.name} with {other}; map them to modules of their own."
                )
        for module in self.policies:
            if module not in found:
                raise SoulsGraphError(
                    f"module {module}: expected a skill that it plays, found none; map one to it or leave it out of "
                    "policies."
                )
        return found
