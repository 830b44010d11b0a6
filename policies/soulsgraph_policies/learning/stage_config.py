"""RLlib's configuration of one stage: which skills learn on top of which, and how.

A field is an attribute of RLlib's configuration, in most cases of the name that its methods take it by. Some are
learned by, some are used elsewhere, and all others stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.policy import PolicySpec
from ray.rllib.utils import force_list

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.learning.hyperparameters import (
    LEARNING,
    DQNHyperparameters,
    changes,
    fields_of,
    learned_by,
    overrides_of,
    refused,
    same,
)
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL, UPDATE_PATHS, SkillDQNLearner
from soulsgraph_policies.learning.module import QNetworkModule

#: Observation and action space.
Spaces = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]

#: One `train()` call ends at the next multiple of this number of decisions.
DECISIONS_PER_ITERATION = 1000
#: Lanes of a runner for which no number is set; fewer where a round has fewer decisions.
LANES = 32
#: Fields that something else goes by: who plays, where, what is shown.
USED = frozenset(
    (
        *("policies", "policy_mapping_fn", "policies_to_train", "algorithm_config_overrides_per_module"),
        *("env_config", "env_runner_cls", "num_env_runners", "num_envs_per_env_runner", "num_cpus_per_env_runner"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "validate_env_runners_after_construction"),
        *("sample_timeout_s", "restart_failed_env_runners", "max_num_env_runner_restarts"),
        *("delay_between_env_runner_restarts_s", "_learner_class", "num_gpus_per_learner", "num_cpus_per_learner"),
        *("local_gpu_idx", "num_cpus_for_main_process", "custom_resources_for_main_process", "placement_strategy"),
        *("callbacks_class", "seed", "log_level", "log_sys_usage", "stats_cls_lookup"),
        *("metrics_num_episodes_for_smoothing", "min_sample_timesteps_per_iteration"),
        *("evaluation_interval", "evaluation_duration", "evaluation_config"),
    )
)
#: What RLlib itself keeps in a configuration.
_BOOKKEEPING = frozenset(
    ("algo_class", "class", "_is_frozen", "_is_online", "_per_module_overrides", "simple_optimizer", "worker_index")
)
#: Callbacks that the algorithm calls; those that its env runners call are theirs to name.
ALGORITHM_CALLBACKS = frozenset(
    (
        *("on_algorithm_init", "on_train_result", "on_checkpoint_loaded", "on_evaluate_start", "on_evaluate_end"),
        *("on_env_runners_recreated", "on_workers_recreated"),
    )
)


#: Fields of a configuration that are not RLlib's.
_OWN = frozenset(
    (
        *("skills", "hyperparameters", "own_hyperparameters", "steps_per_round", "update_path", "clips"),
        *("synchronous", "_own_seed", "_written", "_asked"),
    )
)


def skill_of_agent(agent: str, *_: Any, **__: Any) -> str:
    """Map an agent to its module: every skill is an agent with a module of its own."""
    return agent


def check_unused(fields: Mapping[str, Any], usual: Mapping[str, Any], own: frozenset[str]) -> None:
    """Refuse whatever nothing goes by, unless it has its usual value.

    Args:
        fields: Of a configuration.
        usual: Those of a new one.
        own: Fields that are not RLlib's.

    Raises:
        SoulsGraphError: naming a field that has another value, or that there is none of.
    """
    used = {*LEARNING, *USED, *own, *_BOOKKEEPING}
    for name, value in fields.items():
        # Tune notes its own beside the fields, as __trial_info__.
        if name in used or name.startswith(("callbacks_on_", "__")):
            continue
        if name not in usual:
            raise UnknownNameError("field of RLlib's configuration", name, [n for n in usual if n[0] != "_"])
        if not same(value, usual[name]):
            raise refused(name, shown(usual[name]), value)


def check_callbacks(fields: Mapping[str, Any], runner: str, fired: frozenset[str]) -> None:
    """Refuse callbacks that would never be called: of `fired` all are.

    Raises:
        SoulsGraphError: naming one.
    """
    classes = force_list(fields["callbacks_class"])
    for name in (name for name in dir(RLlibCallback) if name.startswith("on_")):
        asked = fields.get(f"callbacks_{name}") or overridden(classes, name)
        if asked and name not in fired:
            raise SoulsGraphError(
                f"RLlib's callback {name}: expected one that is called with {runner}, found one that never is; leave "
                f"it out, or use {', '.join(sorted(fired))}."
            )


def overridden(callbacks: Iterable[Any], name: str) -> bool:
    """Return whether one of some callback classes, or objects of theirs, has a callback of its own."""
    owners = (one if isinstance(one, type) else type(one) for one in callbacks)
    usual = getattr(RLlibCallback, name)
    return any(getattr(owner, name, usual) is not usual for owner in owners)


class SkillDQNConfig(DQNConfig):
    """Configure one stage: `stage` sets what is trained, all else is RLlib's own.

    What RLlib's calls set holds for every module, whether before or after `stage`: of `training` whatever the learner
    can learn by, and for one module `algorithm_config_overrides_per_module`; of `multi_agent` which module plays each
    skill (`policy_mapping_fn`), and which modules learn (`policies_to_train`): those listed, none of them (an empty
    list), or all (None). Whatever nothing would go by is refused when the algorithm is built. Made by
    `SkillDQN.get_default_config()`.
    """

    #: What a configuration is built into and sampled by unless another is named, and what any runner is. They are made
    #: of configurations, so that the module of the algorithm fills them in.
    usual_algorithm: ClassVar[type[Algorithm]]
    usual_runner: ClassVar[type[Any]]
    any_runner: ClassVar[type[Any]]

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or self.usual_algorithm)
        self.env_config: dict[str, Any] = {}
        self.skills: tuple[Skill, ...] = ()
        self.hyperparameters = DQNHyperparameters(budget=1, buffer_size=1)
        self.own_hyperparameters: dict[str, DQNHyperparameters] = {}
        self.steps_per_round = 1
        self.update_path: str | None = None
        self.clips: dict[str, float] = {}
        self.synchronous = False
        self._own_seed: int | None = None
        #: What `stage` wrote into RLlib's fields, and the fields that RLlib's calls named.
        self._written: dict[str, Any] = {}
        self._asked: tuple[str, ...] = ()
        self._write(fields_of(self.hyperparameters) | {"seed": None, "num_envs_per_env_runner": 1})
        # Runners have no connectors whose state RLlib would merge; `SkillDQN` itself sends the weights.
        self._dont_auto_sync_env_runner_states = True
        self.exploration_config: dict[str, Any] = {}
        self.store_buffer_in_checkpoints = True
        self.env_runners(
            env_runner_cls=self.usual_runner, merge_env_runner_states=False, broadcast_env_runner_states=False
        )
        self.learners(num_learners=0, learner_class=SkillDQNLearner)
        self.fault_tolerance(
            restart_failed_env_runners=True,
            env_runner_health_probe_timeout_s=0.5,
            env_runner_restore_timeout_s=30.0,
            delay_between_env_runner_restarts_s=5.0,
        )
        self.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=DECISIONS_PER_ITERATION)
        # The thread that measures the machine sleeps for up to 0.7 s when a stage ends, and the stage waits for it.
        self.debugging(log_sys_usage=False)

    def stage(
        self,
        skills: Sequence[Skill],
        hyperparameters: DQNHyperparameters | Mapping[str, DQNHyperparameters],
        steps_per_round: int,
        update_path: str | None = None,
        seed: int | None = None,
        synchronous: bool = False,
        clips: Mapping[str, float] | None = None,
    ) -> Self:
        """Train the last of `skills`, or those that have hyperparameters by name, the others frozen.

        At most `steps_per_round` of a skill lie between updates. Without an update path the compiled one is taken
        wherever it can. A module of another name than a skill's learns by the last trained skill's hyperparameters.
        Everything random starts from `seed`, or from that of an earlier `debugging(seed=...)`, by which RLlib also
        seeds every global generator; a later one replaces it.
        Remote runners are learned from as they answer; if `synchronous` all together in their order, which repeats.
        `clips` are the observation clips of frozen modules, where they are not those of what learns.

        Raises:
            UnknownNameError: for an unknown update path or skill.
            SoulsGraphError: for a seed that is no integer of at least 0, or if there are no hyperparameters.
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
        asked = self._asked_fields()
        lanes, usual_lanes = self.num_envs_per_env_runner, min(LANES, steps_per_round)
        if lanes != self._written["num_envs_per_env_runner"]:
            asked["num_envs_per_env_runner"] = lanes
        self.skills, self.hyperparameters, self.own_hyperparameters = tuple(skills), own[trained[-1]], own
        self.update_path, self.steps_per_round, self._own_seed = update_path, steps_per_round, seed
        self.synchronous, self.clips = synchronous, dict(clips or {})
        written = {"seed": self.seed, "num_envs_per_env_runner": usual_lanes}
        self._write(fields_of(self.hyperparameters) | written)
        for field, value in asked.items():
            was = self._written[field]
            # Keys of a replay that were named; a dictionary in the place of a number is one of Tune's.
            merges = isinstance(was, dict) and isinstance(value, dict) and "type" not in value
            setattr(self, field, {**was, **value} if merges else value)
        usual = {"policies": set(names), "policy_mapping_fn": skill_of_agent, "policies_to_train": trained}
        super().multi_agent(**{field: value for field, value in usual.items() if field not in self._asked})
        self._check_modules()
        return self

    def _write(self, fields: Mapping[str, Any]) -> None:
        """Set RLlib's fields, and remember their values: what differs from them later was set by RLlib's calls."""
        self._written = copy.deepcopy(dict(fields))
        for name, value in fields.items():
            setattr(self, name, value)

    def training(self, **settings: Any) -> Self:
        """Change how every module learns, as RLlib documents it; of what nothing goes by the algorithm is not built."""
        super().training(**settings)
        renamed = {"train_batch_size_per_learner": "_train_batch_size_per_learner", "num_sgd_iter": "num_epochs"}
        # Of a replay the keys that were written say which were named.
        named = (renamed.get(name, name) for name in settings)
        kept = (name for name in named if name in LEARNING and name != "replay_buffer_config")
        self._asked = tuple(dict.fromkeys((*self._asked, *kept)))
        return self

    def multi_agent(self, **settings: Any) -> Self:
        """Change which module plays each skill, and which modules learn, as RLlib documents it.

        Raises:
            UnknownNameError: for a module to play by, to train or of a clip that is not among `policies`.
            SoulsGraphError: if the mapping fails, a module plays no skill, or skills of unequal spaces share one.
        """
        super().multi_agent(**settings)
        self._asked = tuple(dict.fromkeys((*self._asked, *settings)))
        if self.skills:
            self._check_modules()
        return self

    def _check_modules(self) -> None:
        self._described()
        _ = self.trained_modules  # Names what plays no skill.
        for module in self.clips:
            if module not in self.policies:
                raise UnknownNameError("module of an observation clip", module, sorted(self.policies))

    def _asked_fields(self) -> dict[str, Any]:
        """Return the fields that hyperparameters are read from, as far as RLlib's calls set them."""
        fields = {name: getattr(self, name) for name in LEARNING}
        return changes(fields, self._written) | {name: fields[name] for name in self._asked if name in fields}

    def get_state(self) -> dict[str, Any]:
        """Return every field; RLlib leaves out those of -1, its mark of what is deprecated, which a value may be."""
        without = ("algo_class", "_is_frozen")
        state: dict[str, Any] = {name: value for name, value in vars(self).items() if name not in without}
        state.update(super().get_state())
        return state

    def validate(self) -> None:
        """Check everything that was set, and fill in what the env runners need.

        Raises:
            SoulsGraphError: if there is no stage; for a setting or a callback that nothing would go by, naming it.
            ValueError: as RLlib raises it.
        """
        if not self.in_evaluation:
            self._check()
            self.env_config = self.env_runner_cls.checked_env_config(self, self.env_config)
            self._check_evaluation()
        super().validate()

    def _check(self) -> None:
        if not self.skills:
            raise SoulsGraphError(
                "SkillDQN: expected what to train, found no skill; call the configuration's `stage` before it is built."
            )
        usual = type(self)(algo_class=self.algo_class)
        check_unused(vars(self), vars(usual), _OWN)
        for field, base in (("env_runner_cls", self.any_runner), ("_learner_class", SkillDQNLearner)):
            found = getattr(self, field)
            if not (isinstance(found, type) and issubclass(found, base)):
                raise refused(field, f"a subclass of {base.__name__}", found)
        check_callbacks(vars(self), self.env_runner_cls.__name__, ALGORITHM_CALLBACKS | self.env_runner_cls.CALLBACKS)
        for module, spec in self.policies.items():
            # Tune makes a tuple of it.
            parts = spec.get_state() if isinstance(spec, PolicySpec) else spec
            if any(part is not None for part in parts):
                raise refused(f"policies[{module!r}]", "a name alone", parts)
        for module in self.algorithm_config_overrides_per_module:
            if module not in self.policies:
                raise UnknownNameError("module of algorithm_config_overrides_per_module", module, sorted(self.policies))
        self._check_modules()
        for module in self.policies:
            self.hyperparameters_of(module)
        for field, least in (("min_sample_timesteps_per_iteration", 1), ("metrics_num_episodes_for_smoothing", 1)):
            found = getattr(self, field)
            if isinstance(found, bool) or not isinstance(found, Integral) or found < least:
                raise refused(field, f"a whole number of at least {least}", found)

    def _check_evaluation(self) -> None:
        """Check how `evaluate` plays, by greedy fights in the driver's process."""
        found = self.evaluation_config or {}
        if isinstance(found, AlgorithmConfig):
            raise refused("evaluation_config", "a dictionary of explore = False and env_config", found)
        for name in found:
            if name not in ("explore", "env_config"):
                raise UnknownNameError("key of evaluation_config", name, ("explore", "env_config"))
        if found.get("explore"):
            raise refused("evaluation_config", "explore = False: evaluate() plays greedily", found)
        duration, interval = self.evaluation_duration, self.evaluation_interval
        if isinstance(duration, bool) or not isinstance(duration, Integral) or duration < 1:
            raise refused("evaluation_duration", "a whole number of episodes", duration)
        if interval and not self.env_runner_cls.evaluates:
            raise refused("evaluation_interval", f"None with {self.env_runner_cls.__name__}", interval)
        self.evaluation_env_config()

    def lanes_of(self, env_config: Mapping[str, Any]) -> Any:
        """Return how many lanes an `env_config` asks for, or else RLlib's `num_envs_per_env_runner`.

        Raises:
            SoulsGraphError: if both were asked for, and differ.
        """
        named = self.num_envs_per_env_runner
        lanes = env_config.get("lanes", named)
        if lanes != named != self._written["num_envs_per_env_runner"]:
            raise refused("num_envs_per_env_runner", f"{shown(lanes)}, the lanes of env_config", named)
        return lanes

    def evaluation_env_config(self) -> dict[str, Any]:
        """Return the `env_config` that `evaluate` plays by."""
        own = (self.evaluation_config or {}).get("env_config", {})
        env_config: dict[str, Any] = self.env_runner_cls.checked_env_config(self, {**self.env_config, **own})
        return env_config

    def _network_config(self, module: str, index: int) -> dict[str, Any]:
        numbers = self.hyperparameters_of(module)
        seed = int(np.random.SeedSequence([self.stage_seed or 0, index]).generate_state(1)[0])
        return {"hidden_sizes": numbers.hidden_sizes, "observation_clip": self.clip_of(module), "seed": seed}

    @property
    def stage_seed(self) -> int | None:
        """What generators of the stage start from; with None the replay draws entropy, the rest starts from 0."""
        later = self.seed != self._written["seed"]
        return self.seed if self._own_seed is None or later else self._own_seed

    @property
    def decisions_per_iteration(self) -> int:
        """One `train()` call ends at the next multiple of this number of decisions."""
        return int(self.min_sample_timesteps_per_iteration)

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
        """Return a module's own hyperparameters, or the last trained skill's, with what RLlib's calls set in them.

        Raises:
            SoulsGraphError: for a value that the learner cannot learn by, naming RLlib's field.
        """
        numbers = self._staged(module)
        if asked := self._asked_fields():
            numbers = learned_by(numbers, asked)
        if overrides := self.algorithm_config_overrides_per_module.get(module):
            numbers = learned_by(numbers, overrides_of(module, overrides))
        return numbers

    def _staged(self, module: str) -> DQNHyperparameters:
        """Return what `stage` received of a module: RLlib's field may still be one of Tune's grids."""
        return self.own_hyperparameters.get(module, self.hyperparameters)

    def clip_of(self, module: str) -> float:
        """Return the bound of what a module's networks see, plus and minus."""
        own = None if module in self.trained_modules else self.clips.get(module)
        return self._staged(module).observation_clip if own is None else own

    def update_path_of(self, module: str) -> str:
        """Return how a module's updates are computed: by the compiled path wherever it can, unless one was chosen."""
        compiles = self.hyperparameters_of(module).compiles and not self.num_gpus_per_learner
        return self.update_path or (CPU_KERNEL if compiles else AUTOGRAD)

    def module_spaces(self) -> dict[str, Spaces]:
        """Return the observation and action space of every module, in the order of the skills they play."""
        return {module: spaces for module, (spaces, _) in self._described().items()}

    def get_default_rl_module_spec(self) -> MultiRLModuleSpec:
        """Return RLlib's specification of the modules, whose spaces are known without a runner to ask."""
        return self.get_multi_rl_module_spec()

    def get_multi_rl_module_spec(self, *, inference_only: bool = False, **_: Any) -> MultiRLModuleSpec:
        """Return RLlib's specification of the modules; with `inference_only` without target networks."""
        specs = {
            module: RLModuleSpec(
                QNetworkModule, *spaces, inference_only=inference_only, model_config=self._network_config(module, index)
            )
            for module, (spaces, index) in self._described().items()
        }
        return MultiRLModuleSpec(rl_module_specs=specs, inference_only=inference_only)

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
