"""DQN for skills of a graph inside RLlib: chunks in, one round of updates, weights out."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.dqn.dqn import DQN
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.actor_manager import FaultTolerantActorManager
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)
from ray.tune import Trainable

from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.inference import Weights
from soulsgraph_policies.learner import ModuleTraining, SkillDQNLearner, as_multi_agent_batch
from soulsgraph_policies.sampler import Chunk
from soulsgraph_policies.stage_config import DECISIONS_PER_ITERATION, ChunkRunner, SkillDQNConfig
from soulsgraph_policies.training_state import read_training_state, write_training_state

#: A runner that died is asked whether it is back at most this often.
PROBE_PERIOD_S = 5.0
#: The stage fails after this time without any live runner.
ABANDONED_AFTER_S = 300.0

_logger = logging.getLogger("soulsgraph")


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


class SkillDQN(DQN):
    """Train the modules of `policies_to_train`, each on a budget of its decisions.

    In one round every runner returns a chunk, what was received goes into the modules' replays, the updates owed
    are taken in one call of the learner group, and the runners get the new weights. A module at its budget keeps
    playing greedily and learns no more; the stage ends when all are there. `decisions` counts what was received,
    `updates` what was learned, summed over modules. A training step is one round with remote runners; without them
    it goes on to the end of the iteration. Where no module learns, an iteration samples the last skill's module.
    """

    config: SkillDQNConfig

    @classmethod
    def get_default_config(cls) -> SkillDQNConfig:
        """Return a configuration without a stage."""
        return SkillDQNConfig(algo_class=cls)

    def setup(self, config: SkillDQNConfig) -> None:
        """Build learner, replays and runners, and send the runners the first weights."""
        #: What learns, by module; empty where `policies_to_train` is.
        self.training: dict[str, ModuleTraining] = {}
        self._watched = 0
        #: Asked after every round with remote runners, which may take long: whether to end the iteration there.
        self.stop_requested: Callable[[], bool] = lambda: False
        self._episodes: dict[str, list[Episodes]] = {}
        self._iteration_end = 0
        self._next_probe_s, self._last_chunk_s = 0.0, time.monotonic()
        self._last_note, self._played = "", False
        #: How many remote runners took part in the last round.
        self.live_runners = int(config.num_env_runners)
        if config.num_env_runners:
            super().setup(config)
        else:
            self._setup_without_ray()
        trained = config.trained_modules
        for place, name in enumerate(trained):
            numbers, observation = config.hyperparameters_of(name), config.skills_of(name)[0].observation
            # Counted from the last one, and numpy pads with zeros: it draws by the seed itself.
            entropy = None if config.stage_seed is None else [config.stage_seed, len(trained) - 1 - place]
            network, mirror = self.learner.q_module(name).q_network, config.mirror_of(name)
            self.training[name] = ModuleTraining(name, numbers, observation, mirror, entropy, network)
        self._title = " + ".join(trained) or "nothing learns"
        self._described = self.config.to_dict()
        self._send_weights(list(config.module_spaces()))

    def _setup_without_ray(self) -> None:
        """Set up with a group of runners of our own: RLlib makes none where nothing is to be sampled."""
        self.config = self._online(False)
        super().setup(self.config)
        self.config = self._online(True)
        self.env_runner_group = LocalRunnerGroup(self.config)

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
        """Run training steps to the next thousand of decisions, or to the end of the budgets.

        Raises:
            SoulsGraphError: if the budgets are spent.
        """
        budget = sum(one.hyperparameters.budget for one in self.training.values()) or math.inf
        if self.finished:
            raise SoulsGraphError(f"stage: expected decisions left to learn from, found none of {self.decisions}.")
        # Whole thousands whatever came before: checkpoints of a learning curve must not drift.
        next_stop = (self.decisions // DECISIONS_PER_ITERATION + 1) * DECISIONS_PER_ITERATION
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
        """Run a round, and without remote runners all rounds of the iteration."""
        if self.config.num_env_runners:
            received = self._round(self._sample())
        else:
            # RLlib's bookkeeping between two training steps would take longer than a short round.
            left = self._iteration_end - self.decisions
            received = self._round(self._runner.sample())
            while received < left:
                received += self._round(self._runner.sample())
        self.metrics.log_value((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), received, reduce="lifetime_sum")
        # Without remote runners an iteration is short, and where it ends shows in the records.
        if self.config.num_env_runners and self.stop_requested():
            self._set_iteration(0)

    def _round(self, chunks: Sequence[Chunk]) -> int:
        """Store what was sampled, learn, and send out the new weights; return the count of decisions received."""
        learning = [one for one in self.training.values() if not one.finished]
        received = self._receive(chunks)
        if received and learning:
            self._learn()
            self._send_weights([one.name for one in learning])
            for one in learning:
                if (figures := one.figures()) is not None:
                    self.metrics.log_dict(figures, key=(LEARNER_RESULTS, one.name), window=1)
        return received

    def _sample(self) -> list[Chunk]:
        # RLlib's own sampling repeats until there is a step: a real-time game with a problem has none.
        sampled: list[list[Chunk]] = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(), local_env_runner=False, timeout_seconds=self.config.sample_timeout_s
        )
        chunks = [chunk for gathered in sampled for chunk in gathered]
        now = time.monotonic()
        self._log_runners()
        self._log_problems(chunks)
        if any(chunk.env_steps() for chunk in chunks):
            self._last_chunk_s, self._played, self._last_note = now, True, ""
        elif now - self._last_chunk_s > ABANDONED_AFTER_S:
            raise SoulsGraphError(
                f"env runners: expected a live one, found none for {ABANDONED_AFTER_S:g} s"
                f"{self._last_note and f' ({self._last_note})'}; join a game PC and resume the run."
            )
        elif not chunks:
            time.sleep(self.config.env_runner_health_probe_timeout_s)
        return chunks

    def _log_runners(self) -> None:
        live = self.env_runner_group.num_healthy_remote_workers()
        if live != self.live_runners:
            change = "an env runner was lost" if live < self.live_runners else "an env runner is back"
            _logger.warning("%s: %s, %d of %d play", self._title, change, live, self.config.num_env_runners)
        self.live_runners = live

    def _log_problems(self, chunks: Sequence[Chunk]) -> None:
        """Log problems of real-time games; one that cannot be opened ends a stage that has not played yet."""
        for chunk in chunks:
            for note in (*chunk.notes, chunk.failure):
                if note and note != self._last_note:
                    self._last_note = note
                    _logger.warning("%s: %s", self._title, note)
            if chunk.failure and not self._played:
                raise SoulsGraphError(chunk.failure)

    def _receive(self, chunks: Sequence[Chunk]) -> int:
        """Store chunks, each module's up to its budget; return the count of decisions received."""
        received, watched = 0, 0
        for chunk in chunks:
            self._require_size(chunk)
            for name, transitions in chunk.transitions.items():
                if name in self.training:
                    received += self.training[name].receive(transitions)
                else:
                    watched += len(transitions)
            for skill, episodes in chunk.episodes.items():
                if len(episodes):
                    self._episodes.setdefault(skill, []).append(episodes)
        for one in self.training.values():
            self.learner.q_module(one.name).set_normalizer(one.normalizer.mean, one.normalizer.deviation)
        self._watched += watched
        return received if self.training else watched

    def _require_size(self, chunk: Chunk) -> None:
        counts, most = [len(part) for part in chunk.transitions.values()], self.config.decisions_per_sample
        if max(counts, default=0) > most or not (any(counts) or chunk.notes or chunk.failure):
            raise SoulsGraphError(
                f"env runner: expected 1 to {most} transitions a sample, found {max(counts, default=0)}; "
                "use no more lanes than decisions in a round."
            )

    def _learn(self) -> None:
        owed = {name: updates for name, one in self.training.items() if (updates := one.owed)}
        if not owed:
            return
        (figures,) = self.learner_group.update(
            batch=as_multi_agent_batch({name: self.training[name].draw(updates) for name, updates in owed.items()}),
            timesteps=self._counts(),
        )
        for name, updates in owed.items():
            self.training[name].learned(figures[name], updates)

    def _counts(self) -> dict[str, Any]:
        """Return the decisions received, of all modules that learn and of each, by RLlib's names."""
        counts = {name: one.decisions for name, one in self.training.items()}
        return {NUM_ENV_STEPS_SAMPLED_LIFETIME: self.decisions, NUM_MODULE_STEPS_SAMPLED_LIFETIME: counts}

    def _send_weights(self, modules: Sequence[str]) -> None:
        state = {COMPONENT_RL_MODULE: {name: self._playing(name) for name in modules}, **self._counts()}
        self._runner.set_state(state)
        if self.env_runner_group.num_remote_env_runners():
            self.env_runner_group.foreach_env_runner(
                "set_state", kwargs={"state": state}, local_env_runner=False, timeout_seconds=0.0
            )

    def _playing(self, module: str) -> Weights:
        """Return what the runners play by: the newest weights, or of a module at its budget those that stay."""
        learning = self.learner.learning.get(module)
        if learning is None:
            return self.learner.q_module(module).weights()
        finished = module in self.training and self.training[module].finished
        return learning.playing_weights() if finished else learning.newest_weights()

    @property
    def _runner(self) -> ChunkRunner:
        runner = self.env_runner_group.local_env_runner
        assert isinstance(runner, ChunkRunner)
        return runner

    def weights(self, module: str) -> Weights:
        """Return a copy of the weights and normaliser that a module is to play by, by name."""
        learning = self.learner.learning.get(module)
        own = self.learner.q_module(module).weights() if learning is None else learning.playing_weights()
        return {name: values.copy() for name, values in own.items()}

    def copies(self, skill: str) -> list[Weights]:
        """Return a frozen skill's weights wherever they are: the learner's, and what every live runner plays it by."""
        played = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.played_weights(skill), timeout_seconds=self.config.sample_timeout_s
        )
        return [self.weights(self.config.module_of(skill)), *played]

    def head_weights(self, module: str) -> Weights:
        """Return a copy of the head that a module trains, by name, if it is not the layer that plays."""
        return {name: values.copy() for name, values in self.learner.learning[module].playing_head().items()}

    def load_weights(self, weights: Mapping[str, Weights]) -> None:
        """Put trained weights in, module by module: frozen ones, or those to continue from.

        Raises:
            SoulsGraphError: if a name or shape does not match.
        """
        for module, values in weights.items():
            self.learner.q_module(module).load_weights(values)
        self._send_weights(list(weights))

    def load_normalizer(self, module: str, state: dict[str, Any]) -> None:
        """Continue from a module's running statistics (`RunningNormalizer.get_state`)."""
        normalizer = self.training[module].normalizer
        normalizer.set_state(state)
        self.learner.q_module(module).set_normalizer(normalizer.mean, normalizer.deviation)
        self._send_weights([module])

    def drain_episodes(self) -> dict[str, Episodes]:
        """Return the episodes that ended since the last call, by the skill that they are counted for."""
        drained, self._episodes = self._episodes, {}
        return {skill: Episodes.join(parts) for skill, parts in drained.items()}

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Ask lost runners at intervals whether they are back: asking a dead one takes time."""
        now = time.monotonic()
        if now < self._next_probe_s:
            return []
        self._next_probe_s = now + PROBE_PERIOD_S
        restored: list[int] = super().restore_env_runners(env_runner_group)
        return restored

    def get_training_state(self) -> dict[str, Any]:
        """Return everything that the rest of the stage depends on, as nested arrays and plain values."""
        sampling = not self.config.num_env_runners
        frozen = [module for module in self.config.module_spaces() if module not in self.training]
        return {
            "training": {name: one.get_state() for name, one in self.training.items()},
            "learner": {name: one.get_training_state() for name, one in self.learner.learning.items()},
            "frozen": {module: self.weights(module) for module in frozen},
            "runner": self._runner.get_training_state() if sampling else {},
        }

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state` of an algorithm of the same configuration."""
        for name, one in self.training.items():
            one.set_state(state["training"][name])
            self.learner.learning[name].set_training_state(state["learner"][name])
        for module, weights in state["frozen"].items():
            self.learner.q_module(module).load_weights(weights)
        self._send_weights(list(self.config.module_spaces()))
        if state["runner"] and not self.config.num_env_runners:
            self._runner.set_training_state(state["runner"])

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write RLlib's checkpoint, and beside it the exact training state."""
        super().save_checkpoint(checkpoint_dir)
        write_training_state(Path(checkpoint_dir), self.get_training_state())

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Continue exactly where `save_checkpoint` was called; nothing is unpickled.

        Raises:
            SoulsGraphError: if the state is missing, damaged or of another stage.
        """
        state = read_training_state(Path(checkpoint_dir))
        found = " + ".join(state["training"])
        if list(state["training"]) != list(self.training):
            raise SoulsGraphError(
                f"{checkpoint_dir}: expected a checkpoint of {self._title}, found {found}; "
                "remove it, or resume the stage it was written by."
            )
        self.set_training_state(state)
