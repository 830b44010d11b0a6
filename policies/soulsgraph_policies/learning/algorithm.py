"""DQN for skills of a graph inside RLlib: chunks in, one round of updates, weights out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import ray
from pyarrow.fs import LocalFileSystem

# Without a session Ray would look for this machine's address on the internet, and warn where that is away; only a
# constant of that module, read as Ray is imported, keeps it from that.
from ray._private import ray_constants
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn.dqn import DQN
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_AGENT_RETURN_MEAN,
    EPISODE_DURATION_SEC_MEAN,
    EPISODE_LEN_MAX,
    EPISODE_LEN_MEAN,
    EPISODE_LEN_MIN,
    EPISODE_MODULE_RETURN_MEAN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)
from ray.tune import Trainable

from soulsgraph_envs.combat.rollout import Doubles, Episodes
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning import env_runners
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import check_memory
from soulsgraph_policies.learning.learner import ModuleTraining, SkillDQNLearner
from soulsgraph_policies.learning.module import QNetworkModule
from soulsgraph_policies.learning.sampler import Chunk
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

#: The share of fights that were won, beside RLlib's figures of episodes.
WIN_RATE = "win_rate"


def _columns(episodes: Episodes) -> dict[str, Any]:
    return {name: values for name, values in vars(episodes).items() if name != "decisions"}


def _figures(episodes: Mapping[str, Episodes], modules: Mapping[str, str]) -> dict[tuple[str, ...], float]:
    """Return RLlib's figures of episodes by their names; NaN where none ended yet.

    `modules` maps skills to the modules that play them, in graph order: returns are summed over them, and the last
    one's decisions, seconds and wins count.
    """

    def of(skill: str, name: str) -> Doubles:
        return np.array(getattr(episodes[skill], name) if skill in episodes else [math.nan], np.float64)

    returns, (*_, last) = {skill: of(skill, "returns") for skill in modules}, modules
    lengths = of(last, "lengths")
    figures: dict[tuple[str, ...], float] = {
        (EPISODE_RETURN_MEAN,): sum(each.mean() for each in returns.values()),
        (EPISODE_RETURN_MIN,): sum(each.min() for each in returns.values()),
        (EPISODE_RETURN_MAX,): sum(each.max() for each in returns.values()),
        (EPISODE_LEN_MEAN,): lengths.mean(),
        (EPISODE_LEN_MIN,): lengths.min(),
        (EPISODE_LEN_MAX,): lengths.max(),
        (EPISODE_DURATION_SEC_MEAN,): of(last, "seconds").mean(),
        (WIN_RATE,): of(last, "won").mean(),
    }
    for skill, each in returns.items():
        figures[EPISODE_AGENT_RETURN_MEAN, skill] = figures[EPISODE_MODULE_RETURN_MEAN, modules[skill]] = each.mean()
    return {name: float(figure) for name, figure in figures.items()}


class SkillDQN(DQN):
    """Train the modules of `policies_to_train`, each on a budget of its decisions.

    In one round a runner's chunk goes into the modules' replays, the updates owed are taken in one call of the
    learner group, and the runners get the new weights: a remote one with the next call to sample. A module at its
    budget keeps playing greedily and learns no more; the stage ends when all are there. `decisions` counts what was
    received, `updates` what was learned, summed over modules. A training step goes on to the end of the iteration.
    Where no module learns, an iteration samples the last skill's module.
    """

    config: SkillDQNConfig
    #: Whether a checkpoint should be saved now, whenever the latest was.
    checkpoint_due = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        clusters = ray_constants.ENABLE_RAY_CLUSTER
        ray_constants.ENABLE_RAY_CLUSTER = clusters and ray.is_initialized()
        try:
            super().__init__(*args, **kwargs)
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = clusters

    def _setup_logdir(self) -> None:
        """Make no folder in the home for logs that nobody writes; Tune's trials keep theirs."""
        if self._storage:
            super()._setup_logdir()

    def __repr__(self) -> str:
        # Ray asks for it where the constructor raised, too.
        return str(super().__repr__()) if isinstance(self.config, SkillDQNConfig) else type(self).__name__

    @classmethod
    def get_default_config(cls) -> SkillDQNConfig:
        """Return a configuration without a stage."""
        return SkillDQNConfig(algo_class=cls)

    def setup(self, config: SkillDQNConfig) -> None:
        """Build learner, replays and runners, and send the runners the first weights."""
        #: What learns, by module; empty where `policies_to_train` is.
        self.training: dict[str, ModuleTraining] = {}
        self._watched = self._iteration_end = 0
        #: Modules whose newest weights the runner in this process does not have: it gets them before it samples.
        self._unsent: set[str] = set()
        #: Asked while remote runners sample, which may take long: whether to end the iteration there.
        self.stop_requested: Callable[[], bool] = lambda: False
        self._episodes: dict[str, list[Episodes]] = {}
        #: The latest of them, as results show them, and how many ended in all: several skills' in one fight are one.
        self._recent: dict[str, Episodes] = {}
        self._ended = 0
        self._decisions_per_iteration = int(self.config.min_sample_timesteps_per_iteration)
        #: How many remote runners play; None where there are none.
        self.live_runners: int | None = config.num_env_runners or None
        self._remote: env_runners.RemoteSampling | None = None
        # RLlib makes no runners where nothing is to be sampled: it would wait for remote ones, without a limit.
        self.config = self._online(False)
        # DQN's own setup asks an env runner for its module.
        Algorithm.setup(self, self.config)

    def _set_up_metrics(self) -> None:
        # RLlib calls this last of all before its first callback, which finds the algorithm whole.
        super()._set_up_metrics()
        self.config = self._online(True)
        self.env_runner_group = self.make_runners(self.config)
        self._set_up_training()

    def _set_up_training(self) -> None:
        config, trained = self.config, self.config.trained_modules
        sizes = {name: config.skills_of(name)[0].observation.size for name in trained}
        check_memory({name: config.hyperparameters_of(name).replay_bytes(size) for name, size in sizes.items()})
        for place, name in enumerate(trained):
            numbers, observation = config.hyperparameters_of(name), config.skills_of(name)[0].observation
            # Counted from the last one, and numpy pads with zeros: it draws by the seed itself.
            entropy = None if config.stage_seed is None else [config.stage_seed, len(trained) - 1 - place]
            self.training[name] = ModuleTraining(name, numbers, observation, entropy)
        sampled = config.sampled_modules
        #: The module that plays each skill whose decisions are collected.
        self._sampled_skills = {
            skill: module for skill, module in config.modules_of_skills().items() if module in sampled
        }
        self._title = " + ".join(trained) or "nothing learns"
        self._described = self.config.to_dict()
        self._remote = self._remote_sampling() if config.num_env_runners else None
        self._unsent.update(config.module_spaces())

    def _remote_sampling(self) -> env_runners.RemoteSampling | None:
        """Return what keeps remote runners sampling; None where they are asked otherwise."""
        modules = list(self.config.module_spaces())
        return env_runners.RemoteSampling(
            self.env_runner_group, lambda: self._state_of(modules), self.config.synchronous, self._title
        )

    def make_runners(self, config: SkillDQNConfig) -> EnvRunnerGroup:
        """Return the env runners."""
        return (env_runners.RemoteRunnerGroup if config.num_env_runners else env_runners.LocalRunnerGroup)(config)

    def _online(self, online: bool) -> SkillDQNConfig:
        config: SkillDQNConfig = self.config.copy(copy_frozen=False)
        config._is_online = online
        config.freeze()
        return config

    def _create_local_replay_buffer_if_necessary(self, config: SkillDQNConfig) -> None:
        # RLlib's buffers keep episodes, not columns: every module that learns has a replay of its own.
        return None

    @property
    def learner(self) -> SkillDQNLearner:
        """The one learner, in the driver's process."""
        learner = self.learner_group._learner
        assert isinstance(learner, SkillDQNLearner)
        return learner

    @property
    def decisions(self) -> int:
        """Decisions received, of all modules that learn; where none does, those of the last skill's module."""
        return sum(one.decisions for one in self.training.values()) if self.training else self._watched

    @property
    def updates(self) -> int:
        """Updates taken, of all modules."""
        return sum(one.updates for one in self.training.values())

    @property
    def finished(self) -> bool:
        """Whether every module that learns has received its whole budget; never where none learns."""
        return bool(self.training) and all(one.finished for one in self.training.values())

    def step(self) -> dict[str, Any]:
        """Run training steps to the end of an iteration, by default the next thousand of decisions, or of the budgets.

        Raises:
            SoulsGraphError: if the budgets are spent.
        """
        budget = sum(one.hyperparameters.budget for one in self.training.values()) or math.inf
        if self.finished:
            raise SoulsGraphError(f"stage: expected decisions left to learn from, found none of {self.decisions}.")
        # Whole iterations whatever came before: checkpoints of a learning curve must not drift.
        each = self._decisions_per_iteration
        next_stop = (self.decisions // each + 1) * each
        self._iteration_end = int(min(next_stop, budget))
        self._set_iteration(self._iteration_end - self.decisions)
        results: dict[str, Any] = super().step()
        return results

    def _set_iteration(self, decisions: int) -> None:
        # Not RLlib's own copy: skills and scenario would be copied in every iteration, which takes 2 % of it.
        config = copy.copy(self.config)
        config._is_frozen = False
        self.config = config.reporting(min_sample_timesteps_per_iteration=decisions)
        self.config.freeze()

    def get_auto_filled_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what Tune adds to a result; the configuration is that of `setup`, one dict for all results."""
        filled: dict[str, Any] = Trainable.get_auto_filled_metrics(self, *args, **kwargs)
        return filled | {"config": self._described}

    def training_step(self) -> None:
        """Sample, add, learn what is owed and send the weights, round by round to the end of the iteration."""
        # RLlib's bookkeeping between two training steps would take longer than a short round.
        before = self.decisions, self._ended
        for chunks in self._rounds():
            learning = {name: one for name, one in self.training.items() if not one.finished}
            if not self._add(chunks) or not learning:
                continue
            if owed := {name: updates for name, one in learning.items() if (updates := one.owed)}:
                drawn = {name: learning[name].draw(updates) for name, updates in owed.items()}
                (metrics,) = self.learner_group.update(batch=drawn, timesteps=self._counts())
                for name, updates in owed.items():
                    learning[name].learned(metrics[name], updates)
            self._unsent.update(learning)
            for name, one in learning.items():
                if (means := one.metrics()) is not None:
                    self.metrics.log_dict(means, key=(LEARNER_RESULTS, name), window=1)
        self._send_unsent()
        self._log_sampling(*before)

    def _rounds(self) -> Iterator[Sequence[Chunk]]:
        """Yield what each round learns from, at least one's: the local runner's, or each chunk of a remote one."""
        if self._remote is None:
            while True:
                self._send_unsent()
                yield self._runner.collect()
                if self.decisions >= self._iteration_end:
                    return
        while True:
            for chunk in self._remote.sample():
                yield [chunk]
            self.live_runners = self._remote.playing
            if self.stop_requested():
                # Without remote runners an iteration is short, and where it ends shows in the records.
                self._set_iteration(0)
                return
            if self.decisions >= self._iteration_end:
                return

    def _add(self, chunks: Sequence[Chunk]) -> int:
        """Add chunks to the replays, each module's up to its budget; return the count of decisions received."""
        before = self.decisions
        for chunk in chunks:
            for name, transitions in chunk.transitions.items():
                if name in self.training:
                    self.training[name].receive(transitions)
                else:
                    self._watched += len(transitions)
            for skill, episodes in chunk.episodes.items():
                if len(episodes):
                    self._episodes.setdefault(skill, []).append(episodes)
                    recent = Episodes.join([self._recent[skill], episodes]) if skill in self._recent else episodes
                    most = self.config.metrics_num_episodes_for_smoothing
                    latest = {name: values[-most:] for name, values in _columns(recent).items()}
                    self._recent[skill] = Episodes(**latest)
            self._ended += max(map(len, chunk.episodes.values()), default=0)
        for one in self.training.values():
            self.learner.q_module(one.name).set_normalizer(one.normalizer.mean, one.normalizer.deviation)
        return self.decisions - before

    def _counts(self) -> dict[str, Any]:
        """Return the decisions received, of all modules that learn and of each, by RLlib's names."""
        counts = {name: one.decisions for name, one in self.training.items()}
        return {NUM_ENV_STEPS_SAMPLED_LIFETIME: self.decisions, NUM_MODULE_STEPS_SAMPLED_LIFETIME: counts}

    def _send_unsent(self) -> None:
        if self._unsent:
            self._runner.set_state(self._state_of(sorted(self._unsent)))
            self._unsent.clear()

    def _state_of(self, modules: Collection[str]) -> dict[str, Any]:
        """Return what runners play by: weights of some modules, of one at its budget those that stay, and counts."""
        weights: dict[str, Weights] = {}
        for name in modules:
            finished = name in self.training and self.training[name].finished
            weights[name] = self._playing(name) if finished else self.learner.q_module(name).weights()
        return {COMPONENT_RL_MODULE: weights, **self._counts()}

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Play `evaluation_duration` greedy fights by what was learned so far; return their figures by RLlib's names.

        They are the same fights with every call, on streams of their own: nothing that is trained depends on them.

        Raises:
            SoulsGraphError: if the env runners have no simulator.
        """
        self._before_evaluate()
        found = {"algorithm": self, "metrics_logger": self.metrics}
        make_callback("on_evaluate_start", self.callbacks, self.config.callbacks_on_evaluate_start, kwargs=found)
        modules, count = self.config.modules_of_skills(), self.config.evaluation_duration
        weights = {module: self.weights(module) for module in modules.values()}
        episodes = self._runner.evaluate(weights, self.config.evaluation_env_config(), count)
        skill = self.config.skills[-1].name
        figures: dict[str, Any] = {NUM_EPISODES: count, NUM_ENV_STEPS_SAMPLED: int(episodes.lengths.sum())}
        for (name, *inner), value in _figures({skill: episodes}, {skill: modules[skill]}).items():
            figures[name] = {inner[0]: value} if inner else value
        results = {ENV_RUNNER_RESULTS: figures}
        found["evaluation_metrics"] = results
        make_callback("on_evaluate_end", self.callbacks, self.config.callbacks_on_evaluate_end, kwargs=found)
        return results

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:
        # What is evaluated is played by `evaluate` itself.
        return False

    def _log_sampling(self, decisions: int, ended: int) -> None:
        """Log what was sampled since these counts, by RLlib's names, and what the runners' callbacks logged."""
        logged = [self._runner.get_metrics()] if self._remote is None else self._remote.metrics
        if any(logged):
            self.metrics.aggregate([one for one in logged if one], key=ENV_RUNNER_RESULTS)
            logged.clear()
        for name, value in _figures(self._recent, self._sampled_skills).items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, *name), value, reduce="item")
        for name, count in ((NUM_ENV_STEPS_SAMPLED, self.decisions - decisions), (NUM_EPISODES, self._ended - ended)):
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), count, reduce="sum")
        self._log_lifetimes()

    def _log_lifetimes(self) -> None:
        for name, count in ((NUM_ENV_STEPS_SAMPLED_LIFETIME, self.decisions), (NUM_EPISODES_LIFETIME, self._ended)):
            before = self.metrics.peek((ENV_RUNNER_RESULTS, name), default=0)
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), count - before, reduce="lifetime_sum")

    @property
    def _runner(self) -> env_runners.ChunkRunner:
        runner = self.env_runner_group.local_env_runner
        assert isinstance(runner, env_runners.ChunkRunner)
        return runner

    def weights(self, module: str) -> Weights:
        """Return a copy of the weights and normaliser that a module is to play by, by name."""
        return {name: values.copy() for name, values in self._playing(module).items()}

    def _playing(self, module: str) -> Weights:
        learning = self.learner.learning.get(module)
        return self.learner.q_module(module).weights() if learning is None else learning.playing_weights()

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> QNetworkModule:
        """Return a copy of a module as it is to be played."""
        module = copy.deepcopy(self.learner.q_module(module_id))
        module.load_weights(self.weights(module_id))
        return module

    def copies(self, skill: str) -> list[Weights]:
        """Return a frozen skill's weights wherever they are: the learner's, and what every live runner plays it by.

        A runner that was not asked to sample yet plays by none.
        """
        self._send_unsent()
        played = self.env_runner_group.foreach_env_runner(
            lambda runner: [runner.played_weights(skill)] if runner.has_weights else [],
            timeout_seconds=env_runners.SILENT_AFTER_S,
        )
        return [self.weights(self.config.module_of(skill)), *(found for one in played for found in one)]

    def load_weights(self, weights: Mapping[str, Weights]) -> None:
        """Put trained weights in, module by module: frozen ones, or those to continue from.

        Raises:
            SoulsGraphError: if a name or shape does not match.
        """
        for module, values in weights.items():
            self.learner.q_module(module).load_weights(values)
        self._unsent.update(weights)

    def load_normalizer(self, module: str, state: dict[str, Any]) -> None:
        """Continue from a module's running statistics (`RunningNormalizer.get_state`)."""
        normalizer = self.training[module].normalizer
        normalizer.set_state(state)
        self.learner.q_module(module).set_normalizer(normalizer.mean, normalizer.deviation)
        self._unsent.update([module])

    def constrain(self, module: str, constraint: Constraint) -> None:
        """Let a constraint change the gradients of a module that learns, from now on.

        Checkpoints hold it. What its mask holds stays bit-identical: call `load_weights` before, if at all.
        """
        self.learner.learning[module].constrain(constraint)

    def freeze_normalizer(self, module: str) -> None:
        """Keep a module's running statistics as they are now, whatever it observes, to the end of the stage.

        Checkpoints hold it. Call `load_normalizer` before: of a new module the mean stays 0 and the deviation 1.
        """
        self.training[module].normalizer_frozen = True

    def drain_episodes(self) -> dict[str, Episodes]:
        """Return the episodes that ended since the last call, by the skill that they are counted for."""
        drained, self._episodes = self._episodes, {}
        return {skill: Episodes.join(parts) for skill, parts in drained.items()}

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Return the remote runners that are back, for RLlib's callbacks; their calls brought them everything."""
        if self._remote is None:
            restored: list[int] = env_runner_group.probe_unhealthy_env_runners()
            if restored:
                # Whoever is back has no weights.
                self._unsent.update(self.config.module_spaces())
            return restored
        back, self._remote.back = self._remote.back, []
        return back

    def cleanup(self) -> None:
        """Stop the runners and the learner; remote ones are killed: RLlib would wait for one that does not answer."""
        if self._remote is not None:
            self.env_runner_group._worker_manager.clear()
        super().cleanup()

    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return everything that the rest of the stage depends on, as nested arrays and plain values."""
        self._send_unsent()
        sampling = not self.config.num_env_runners
        frozen = [module for module in self.config.module_spaces() if module not in self.training]
        return {
            "training": {name: one.get_state() for name, one in self.training.items()},
            "learner": {name: one.get_state() for name, one in self.learner.learning.items()},
            "frozen": {module: self.weights(module) for module in frozen},
            "runner": self._runner.get_training_state() if sampling else {},
            "recent": {skill: _columns(episodes) for skill, episodes in self._recent.items()},
            "episodes": self._ended,
            "iteration": self.iteration,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of an algorithm of the same configuration.

        Raises:
            SoulsGraphError: if the state is that of a stage which games or a fleet play.
        """
        if "journal" in state:
            raise SoulsGraphError(
                f"{self._title}: expected a checkpoint of a stage in the simulator, found one of games; resume it with "
                "`games` or `fleet`, or remove the stage's checkpoints to begin it anew."
            )
        for name, one in self.training.items():
            one.set_state(state["training"][name])
            self.learner.learning[name].set_state(state["learner"][name])
        for module, weights in state["frozen"].items():
            self.learner.q_module(module).load_weights(weights)
        self._recent = {skill: Episodes(**columns) for skill, columns in state["recent"].items()}
        self._ended, self._iteration = int(state["episodes"]), int(state["iteration"])
        self._log_lifetimes()
        self._unsent.update(self.config.module_spaces())
        self._send_unsent()
        if state["runner"] and not self.config.num_env_runners:
            self._runner.set_training_state(state["runner"])

    def save_to_path(self, path: str | Path | None = None, **kwargs: Any) -> str:
        """Write RLlib's checkpoint, and beside it the exact training state; return the folder.

        Raises:
            SoulsGraphError: for a folder that is not this machine's.
        """
        # Beside it RLlib keeps what makes the algorithm again, and the modules.
        only = {COMPONENT_LEARNER_GROUP: None}
        folder: str = super().save_to_path(_local(path, kwargs.get("filesystem")), state=only, **kwargs)
        write_training_state(Path(folder), self.get_state())
        return folder

    def restore_from_path(self, path: str | Path, *, component: str | None = None, **kwargs: Any) -> None:
        """Continue exactly where `save_to_path` was called, as `from_checkpoint` does.

        Raises:
            SoulsGraphError: as `load_checkpoint`, for a folder that is not this machine's, and for a `component`, which
                would bring weights without their normaliser, replay and counts.
        """
        if component is not None:
            raise _not_by(f"it for the component {shown(component)}", "restore_from_path without a component")
        # Not RLlib's own way, which puts the weights into a Ray: the state holds everything.
        self._take_up(_local(path, kwargs.get("filesystem")))

    @classmethod
    def from_checkpoint(cls, path: Any, *args: Any, **kwargs: Any) -> Self:
        """Make the algorithm of a checkpoint, which goes on exactly where it was written."""
        made: Self = super().from_checkpoint(_local(path, kwargs.get("filesystem")), *args, **kwargs)
        return made

    def set_weights(self, weights: Any) -> None:
        """Refuse what would set the runners' weights alone, which the learner's replace at once."""
        raise _not_by("set_weights", "load_weights, and load_normalizer where the module learns on")

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what `from_checkpoint` makes the algorithm of: the configuration before an iteration was under way."""
        state = self.config.get_state()
        return (state | {"min_sample_timesteps_per_iteration": self._decisions_per_iteration},), {}

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Continue exactly where `save_checkpoint` was called; nothing is unpickled.

        Raises:
            SoulsGraphError: if the state is missing, damaged or of another stage.
        """
        self._take_up(checkpoint_dir)
        called = {"algorithm": self}
        make_callback("on_checkpoint_loaded", self.callbacks, self.config.callbacks_on_checkpoint_loaded, kwargs=called)

    def _take_up(self, folder: Any) -> None:
        state = read_training_state(Path(folder))
        found = " + ".join(map(str, state.get("training", ())))
        if list(state.get("training", ())) != list(self.training):
            raise SoulsGraphError(
                f"{folder}: expected a checkpoint of {self._title}, found {found}; "
                "remove it, or resume the stage it was written by."
            )
        try:
            self.set_state(state)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            # Its digest holds: somebody else wrote it, or another version did.
            raise SoulsGraphError(
                f"{folder}: expected a checkpoint of this version of soulsgraph, found one without "
                f"{shown(error)}; remove it to go on from the checkpoint before it."
            ) from error


SkillDQNConfig.usual_algorithm = SkillDQN
SkillDQNConfig.usual_runner, SkillDQNConfig.any_runner = env_runners.SkillGraphEnvRunner, env_runners.ChunkRunner


def _not_by(called: str, instead: str) -> SoulsGraphError:
    return SoulsGraphError(f"SkillDQN: expected a call of {instead}, found one of {called}; use the other.")


def _local(path: Any, filesystem: Any = None) -> Any:
    """Return a folder of this machine by its whole path, which Arrow asks for; no folder where none is named.

    Raises:
        SoulsGraphError: for one that is not this machine's.
    """
    named = str(path).removeprefix("file://")
    if "://" in named or not (filesystem is None or isinstance(filesystem, LocalFileSystem)):
        raise SoulsGraphError(
            f"checkpoint: expected a folder of this machine, found {path}; copy checkpoints from and to other storage, "
            "as Tune does."
        )
    return None if path is None else Path(named).expanduser().absolute()
