"""RLlib's configuration of one stage: which skills learn on top of which, and how.

A field is an attribute of RLlib's configuration, in most cases of the name that its methods take it by. What a module
learns by is read from here and from nowhere else; some fields are used elsewhere, and all others stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

import gymnasium
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn.dqn import DQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.policy import PolicySpec
from ray.rllib.utils import force_list
from ray.util.placement_group import PlacementGroup
from typing_extensions import TypedDict

from soulsgraph_envs.core.config import Between, Holds, Where, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.learning.hyperparameters import MODEL, REPLAY, DQNHyperparameters, changed
from soulsgraph_policies.learning.learner import AUTOGRAD, CPU_KERNEL, SkillDQNLearner
from soulsgraph_policies.learning.module import QNetworkModule

#: Observation and action space.
Spaces = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]

#: One `train()` call ends at the next multiple of this number of decisions.
DECISIONS_PER_ITERATION = 1000
#: Lanes of a runner for which no number is set; fewer where a round has fewer decisions.
LANES = 32
#: Hyperparameters that are fields of the configuration, each by its own name, and those of them that are not RLlib's.
_FIELDS = tuple(each.name for each in fields(DQNHyperparameters) if each.name not in (*REPLAY, *MODEL))
_OWN_FIELDS = ("budget", "semi_markov", "averaged_fraction", "margin")
#: What a module learns by, as `algorithm_config_overrides_per_module` names it.
LEARNING = (*_FIELDS, "replay_buffer_config")
#: Every field that something goes by; all others keep their usual values.
USED = frozenset(
    (
        *LEARNING,
        *("_train_batch_size_per_learner", "explore", "_model_config"),
        *("skills", "steps_per_round", "update_path", "clips", "synchronous", "own_seed"),
        *("policies", "policy_mapping_fn", "policies_to_train", "algorithm_config_overrides_per_module"),
        *("env_config", "env_runner_cls", "num_env_runners", "num_envs_per_env_runner", "num_cpus_per_env_runner"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "places"),
        *("sample_timeout_s", "restart_failed_env_runners", "max_num_env_runner_restarts"),
        *("delay_between_env_runner_restarts_s", "_learner_class", "num_gpus_per_learner", "num_cpus_per_learner"),
        *("local_gpu_idx", "num_cpus_for_main_process", "custom_resources_for_main_process", "placement_strategy"),
        *("callbacks_class", "seed", "log_level", "log_sys_usage", "stats_cls_lookup"),
        *("metrics_num_episodes_for_smoothing", "min_sample_timesteps_per_iteration"),
        *("evaluation_interval", "evaluation_duration", "evaluation_config"),
        # What RLlib itself keeps in a configuration.
        *("algo_class", "class", "_is_frozen", "_is_online", "_per_module_overrides", "simple_optimizer"),
        "worker_index",
    )
)
#: Callbacks that the algorithm calls; those that its env runners call are theirs to name.
ALGORITHM_CALLBACKS = frozenset(
    (
        *("on_algorithm_init", "on_train_result", "on_checkpoint_loaded", "on_evaluate_start", "on_evaluate_end"),
        *("on_env_runners_recreated", "on_workers_recreated"),
    )
)
#: The replays of RLlib's that may be named, and the exponent by which they draw where none is.
_REPLAYS = {
    "EpisodeReplayBuffer": 0.0,
    "MultiAgentEpisodeReplayBuffer": 0.0,
    "PrioritizedEpisodeReplayBuffer": 0.6,
    "MultiAgentPrioritizedEpisodeReplayBuffer": 0.6,
}
#: No gradient has a greater norm: RLlib's None, which clips none.
_UNCLIPPED = 1e9
_Count = Annotated[int, Between(1, 10**9)]


#: What to do about a field that SkillDQN does not go by.
_REMEDY = "leave it out, or train with one of RLlib's own algorithms on SkillGraphEnv"
_REFUSED = Where(None, remedy=_REMEDY)


class _Replay(TypedDict):
    """The keys of `replay_buffer_config`; the hyperparameters check their values."""

    type: Annotated[str, Holds(lambda name: name.rpartition(".")[2] in _REPLAYS, f"be one of {', '.join(_REPLAYS)}")]
    capacity: Any
    alpha: NotRequired[Any]
    beta: NotRequired[Any]


class _Model(TypedDict, total=False):
    """The keys of `model_config`; the hyperparameters check their values."""

    fcnet_hiddens: Any
    observation_clip: Any


class _Evaluation(TypedDict, total=False):
    """The keys of `evaluation_config`: `evaluate` plays greedily."""

    explore: Literal[False]
    env_config: dict[str, Any]


class _Stage(TypedDict):
    """Arguments of `stage` that it checks."""

    update_path: Literal["autograd", "cpu"] | None
    seed: Annotated[int, Between(0, 2**63)] | None


class _Fields(TypedDict):
    """Fields that are no hyperparameters, and what they may be."""

    num_envs_per_env_runner: _Count
    min_sample_timesteps_per_iteration: _Count
    metrics_num_episodes_for_smoothing: _Count
    evaluation_duration: _Count
    evaluation_config: _Evaluation | None


def skill_of_agent(agent: str, *_: Any, **__: Any) -> str:
    """Map an agent to its module: every skill is an agent with a module of its own."""
    return agent


def refused(field: str, expected: str, found: Any) -> SoulsGraphError:
    """Return the error of a field whose value SkillDQN does not go by."""
    return SoulsGraphError(
        f"RLlib's {field.lstrip('_')}: expected {expected}, for SkillDQN goes by no other, found {shown(found)}",
        _REMEDY,
    )


def overridden(callbacks: Iterable[Any], name: str) -> bool:
    """Return whether one of some callback classes, or objects of theirs, has a callback of its own."""
    owners = (one if isinstance(one, type) else type(one) for one in callbacks)
    usual = getattr(RLlibCallback, name)
    return any(getattr(owner, name, usual) is not usual for owner in owners)


def _plain(value: Any) -> Any:
    """Return a field's value without the kinds of numbers, lists and names in which callers, numpy and Tune differ."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


class SkillDQNConfig(DQNConfig):
    """Configure one stage: `stage` sets what is trained, all else is RLlib's own.

    Later calls of RLlib's methods replace what `stage` set: of `training` and `rl_module` how every module learns, for
    one module by `algorithm_config_overrides_per_module`; of `multi_agent` which module plays each skill
    (`policy_mapping_fn`), and which modules learn (`policies_to_train`): those listed, none of them (an empty list), or
    all (None). Whatever nothing would go by is refused when the algorithm is built. Made by
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
        self.steps_per_round = 1
        self.update_path: str | None = None
        self.clips: dict[str, float] = {}
        self.synchronous = False
        self.own_seed: int | None = None
        #: Ray placement groups in which the remote runners are, one each; none where Ray finds places by itself.
        self.places: tuple[PlacementGroup, ...] = ()
        numbers = DQNHyperparameters(budget=1, capacity=1)
        self.training(dueling=False, **numbers.training()).rl_module(model_config=numbers.model_config())
        # Runners have no connectors whose state RLlib would merge; `SkillDQN` itself sends the weights.
        self._dont_auto_sync_env_runner_states = True
        self.exploration_config: dict[str, Any] = {}
        self.store_buffer_in_checkpoints = True
        self.env_runners(
            env_runner_cls=self.usual_runner,
            merge_env_runner_states=False,
            broadcast_env_runner_states=False,
            # Spaces are known, and who starts late, or never, holds up nobody.
            create_env_on_local_worker=True,
            validate_env_runners_after_construction=False,
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

        The last trained skill's hyperparameters become those of the configuration; where another one has others, they
        become its module's `algorithm_config_overrides_per_module`. At most `steps_per_round` of a skill lie between
        updates. Without an update path the compiled one is taken wherever it can. Everything random starts from `seed`,
        or else from that of `debugging(seed=...)`, by which RLlib also seeds every global generator. Remote runners are
        learned from as they answer; if `synchronous` all together in their order, which repeats. `clips` are the
        observation clips of frozen modules, where they are not those of what learns.

        Raises:
            UnknownNameError: for an unknown skill.
            DataError: for an unknown update path, or a seed that is no integer of at least 0.
        """
        asked = {"update_path": update_path, "seed": _plain(seed)}
        validate(_Stage, asked, Where(None, "stage", "correct the argument"))
        names = [skill.name for skill in skills]
        own = dict(hyperparameters) if isinstance(hyperparameters, Mapping) else {names[-1]: hyperparameters}
        for name in own:
            if name not in names:
                raise UnknownNameError("skill to train", name, names)
        trained = [name for name in names if name in own]
        self.skills, self.steps_per_round, self.update_path = tuple(skills), steps_per_round, update_path
        self.own_seed, self.synchronous, self.clips = seed, synchronous, dict(clips or {})
        *others, last = trained
        common = own[last].training()
        self.training(**common).rl_module(model_config=own[last].model_config())
        self.algorithm_config_overrides_per_module = {
            name: self.overrides(**{key: value for key, value in own[name].training().items() if value != common[key]})
            for name in others
        }
        self.env_runners(num_envs_per_env_runner=min(LANES, steps_per_round))
        self.multi_agent(policies=set(names), policy_mapping_fn=skill_of_agent, policies_to_train=trained)
        return self

    def training(self, **settings: Any) -> Self:
        """Change how every module learns, as RLlib documents it; beside its own by `_OWN_FIELDS`."""
        for name in _OWN_FIELDS:
            if name in settings:
                setattr(self, name, settings.pop(name))
        super().training(**settings)
        return self

    def rl_module(self, **settings: Any) -> Self:
        """Change the modules, as RLlib documents it; what a `model_config` leaves out stays."""
        if isinstance(model := settings.get("model_config"), Mapping):
            settings["model_config"] = {**self._model_config, **model}
        super().rl_module(**settings)
        return self

    def validate(self) -> None:
        """Check everything that was set, and fill in what the env runners need.

        Raises:
            SoulsGraphError: if there is no stage; for a setting or a callback that nothing would go by, naming it.
            UnknownNameError: for a module to play by, to train, of overrides or of a clip that is not in `policies`.
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
        self._check_unused()
        for field, base in (("env_runner_cls", self.any_runner), ("_learner_class", SkillDQNLearner)):
            found = getattr(self, field)
            if not (isinstance(found, type) and issubclass(found, base)):
                raise refused(field, f"a subclass of {base.__name__}", found)
        self._check_callbacks(ALGORITHM_CALLBACKS | self.env_runner_cls.CALLBACKS)
        for module, spec in self.policies.items():
            # Tune makes a tuple of it.
            parts = spec.get_state() if isinstance(spec, PolicySpec) else spec
            if any(part is not None for part in parts):
                raise refused(f"policies[{module!r}]", "a name alone", parts)
        self._described()
        for module in self.algorithm_config_overrides_per_module:
            if module not in self.policies:
                known = sorted(self.policies)
                raise UnknownNameError("module of algorithm_config_overrides_per_module", module, known)
        validate(_Fields, {name: _plain(getattr(self, name)) for name in _Fields.__annotations__}, _REFUSED)
        for module in (*self.policies, *self.trained_modules):
            self.hyperparameters_of(module)
        if self.num_envs_per_env_runner > self.steps_per_round:
            expected = f"at most {self.steps_per_round}, no more than decisions in a round"
            raise refused("num_envs_per_env_runner", expected, self.num_envs_per_env_runner)

    def _check_unused(self) -> None:
        """Refuse whatever nothing goes by, unless it has its usual value."""
        usual = vars(type(self)(algo_class=self.algo_class))
        for name, value in vars(self).items():
            # Tune notes its own beside the fields, as __trial_info__.
            if name in USED or name.startswith(("callbacks_on_", "__")):
                continue
            if name not in usual:
                raise UnknownNameError("field of RLlib's configuration", name, [n for n in usual if n[0] != "_"])
            if _plain(value) != _plain(usual[name]):
                raise refused(name, shown(usual[name]), value)

    def _check_callbacks(self, fired: frozenset[str]) -> None:
        """Refuse callbacks that would never be called: of `fired` all are."""
        classes = force_list(self.callbacks_class)
        for name in (name for name in dir(RLlibCallback) if name.startswith("on_")):
            if name not in fired and (getattr(self, f"callbacks_{name}", None) or overridden(classes, name)):
                raise SoulsGraphError(
                    f"RLlib's callback {name}: expected one that is called with {self.env_runner_cls.__name__}, found "
                    f"one that never is; leave it out, or use {', '.join(sorted(fired))}."
                )

    def _check_evaluation(self) -> None:
        """Check how `evaluate` plays, by greedy fights in the driver's process."""
        if self.evaluation_interval and not self.env_runner_cls.evaluates:
            raise refused("evaluation_interval", f"None with {self.env_runner_cls.__name__}", self.evaluation_interval)
        self.evaluation_env_config()

    def evaluation_env_config(self) -> dict[str, Any]:
        """Return the `env_config` that `evaluate` plays by."""
        own = (self.evaluation_config or {}).get("env_config", {})
        env_config: dict[str, Any] = self.env_runner_cls.checked_env_config(self, {**self.env_config, **own})
        return env_config

    @property
    def stage_seed(self) -> int | None:
        """What generators of the stage start from; with None the replay draws entropy, the rest starts from 0."""
        return self.seed if self.own_seed is None else self.own_seed

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
        """Return what a module learns by: the configuration's fields, its own overrides in their place.

        Raises:
            UnknownNameError: for an override, a key of the replay or of the model that there is none of.
            SoulsGraphError: for a value that the learner cannot learn by, naming the field.
        """
        # Not `get_config_for_module`, which keeps a copy of everything.
        own = self.algorithm_config_overrides_per_module.get(module, {})
        for name in own:
            if name not in LEARNING:
                raise UnknownNameError(f"field that module {module} may have of its own", name, LEARNING)
        values = {name: getattr(self, name) for name in LEARNING} | own
        replay: Any = validate(_Replay, _plain(values.pop("replay_buffer_config")), _REFUSED.at("replay_buffer_config"))
        model: Any = validate(_Model, _plain(self._model_config), _REFUSED.at("model_config"))
        kind = replay.pop("type").rpartition(".")[2]
        if not _REPLAYS[kind] and replay.get("alpha"):
            raise refused("replay_buffer_config", f"alpha = 0 with type {kind}", replay)
        values = {name: _plain(value) for name, value in values.items()}
        if values["grad_clip"] is None:
            values["grad_clip"] = _UNCLIPPED
        if not self.explore:
            values["epsilon"] = 0.0
        return changed(DQNHyperparameters(budget=1, capacity=1), {"alpha": _REPLAYS[kind], **replay, **model, **values})

    def clip_of(self, module: str) -> float:
        """Return the bound of what a module's networks see, plus and minus."""
        common: float = self._model_config["observation_clip"]
        return common if module in self.trained_modules else self.clips.get(module, common)

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

    def get_multi_rl_module_spec(self, **_: Any) -> MultiRLModuleSpec:
        """Return RLlib's specification of the modules."""
        specs = {}
        for module, (spaces, index) in self._described().items():
            seed = int(np.random.SeedSequence([self.stage_seed or 0, index]).generate_state(1)[0])
            model = {**self._model_config, "observation_clip": self.clip_of(module), "seed": seed}
            specs[module] = RLModuleSpec(QNetworkModule, *spaces, model_config=model)
        return MultiRLModuleSpec(rl_module_specs=specs)

    def _described(self) -> dict[str, tuple[Spaces, int]]:
        """Return each module's spaces, and the place of the first skill that it plays.

        Raises:
            SoulsGraphError: if a module plays no skill, or skills of unequal spaces.
        """
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
