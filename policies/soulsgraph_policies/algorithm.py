"""DQN for one skill of a graph inside RLlib: chunks in, one round of updates, weights out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.dqn.dqn import DQN
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY, TD_ERROR_MEAN_KEY
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.chunk_runner import ChunkRunner
from soulsgraph_policies.learner import SkillDQNLearner, as_multi_agent_batch
from soulsgraph_policies.module import QNetworkModule
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.replay import ReplayRing
from soulsgraph_policies.stage_config import DECISIONS_PER_ITERATION, SkillDQNConfig
from soulsgraph_policies.training_state import read_training_state, write_training_state
from soulsgraph_policies.transitions import Chunk
from soulsgraph_policies.update_kernel import UpdateFigures
from soulsgraph_policies.weights import Weights

#: A runner that died is asked whether it is back at most this often.
PROBE_PERIOD_S = 5.0
#: The stage fails after this time without any live runner.
ABANDONED_AFTER_S = 300.0

#: Loss and Q-values are averaged over so many updates before they are logged.
UPDATES_PER_LOG = 125

_logger = logging.getLogger("soulsgraph")


@dataclass
class _Figures:
    """Sums of the learner's figures, weighted by updates."""

    updates: int = 0
    loss: float = 0.0
    q_mean: float = 0.0
    td_error: float = 0.0

    def add(self, figures: UpdateFigures, updates: int) -> None:
        self.updates += updates
        self.loss += figures.loss * updates
        self.q_mean += figures.q_mean * updates
        self.td_error += figures.td_error * updates

    def means(self) -> dict[str, float]:
        sums = {QF_LOSS_KEY: self.loss, QF_MEAN_KEY: self.q_mean, TD_ERROR_MEAN_KEY: self.td_error}
        return {name: value / max(self.updates, 1) for name, value in sums.items()}


class SkillDQN(DQN):
    """Train one skill on a budget of its decisions.

    In one round every runner returns a chunk, its transitions go into the replay, the updates due
    are taken in one call of the learner group, and the runners get the new weights. `decisions`
    counts the decisions received, `updates` the updates taken. A training step is one round with remote
    runners; without them it goes on to the end of the iteration.
    """

    config: SkillDQNConfig
    local_replay_buffer: ReplayRing

    @classmethod
    def get_default_config(cls) -> SkillDQNConfig:
        """Return a configuration without a stage."""
        return SkillDQNConfig(algo_class=cls)

    def setup(self, config: SkillDQNConfig) -> None:
        """Build learner, replay and runners, and send the runners the first weights."""
        self.decisions, self.updates = 0, 0
        #: Asked after every round with remote runners, which may take long: whether to end the iteration there.
        self.stop_requested: Callable[[], bool] = lambda: False
        self._episodes: list[Episodes] = []
        self._figures = _Figures()
        self._iteration_end = 0
        self._next_probe_s, self._last_chunk_s = 0.0, time.monotonic()
        self._last_note, self._played = "", False
        self._live_runners = int(config.num_env_runners)
        super().setup(config)
        observation = config.skills[-1].observation
        self.normalizer = RunningNormalizer(observation.size, observation.indicators)
        self._generator = np.random.Generator(np.random.PCG64(self.config.seed))
        self._send_weights([skill.name for skill in config.skills])

    def _create_local_replay_buffer_if_necessary(self, config: SkillDQNConfig) -> ReplayRing:
        # RLlib would take a class for a string here, and its buffers keep episodes, not columns.
        return ReplayRing(config.hyperparameters, config.skills[-1].observation.size, config.mirror)

    @property
    def learner(self) -> SkillDQNLearner:
        """The one learner, in the driver's process."""
        learner = self.learner_group._learner
        assert isinstance(learner, SkillDQNLearner)
        return learner

    @property
    def finished(self) -> bool:
        """Whether the whole budget was received."""
        return self.decisions >= self.config.hyperparameters.budget

    @property
    def exploration_rate(self) -> float:
        """The share of random actions at this count of decisions."""
        return self.config.hyperparameters.exploration_rate(self.decisions)

    def step(self) -> dict[str, Any]:
        """Run training steps up to the next multiple of 1,000 decisions, or to the end of the budget.

        Raises:
            SoulsGraphError: if the budget is spent.
        """
        budget = self.config.hyperparameters.budget
        if self.finished:
            raise SoulsGraphError(f"stage: expected decisions left to learn from, found none of {self.decisions}.")
        # Whole thousands whatever came before: checkpoints of a learning curve must not drift.
        next_stop = (self.decisions // DECISIONS_PER_ITERATION + 1) * DECISIONS_PER_ITERATION
        self._iteration_end = min(next_stop, budget)
        self._set_iteration(self._iteration_end - self.decisions)
        results: dict[str, Any] = super().step()
        return results

    def _set_iteration(self, decisions: int) -> None:
        self.config = self.config.copy(copy_frozen=False).reporting(min_sample_timesteps_per_iteration=decisions)
        self.config.freeze()

    def training_step(self) -> None:
        """Run a round, and without remote runners all rounds of the iteration."""
        before = self.decisions
        if self.config.num_env_runners:
            self._round(self._sample())
        else:
            # RLlib's bookkeeping between two training steps would take longer than a short round.
            self._round(self._runner.sample())
            while self.decisions < self._iteration_end:
                self._round(self._runner.sample())
        received = self.decisions - before
        self.metrics.log_value((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), received, reduce="lifetime_sum")
        # Without remote runners an iteration is short, and where it ends shows in the records.
        if self.config.num_env_runners and self.stop_requested():
            self._set_iteration(0)

    def _round(self, chunks: Sequence[Chunk]) -> None:
        """Store what was sampled, learn, and send out the new weights."""
        if self._receive(chunks):
            self._learn()
            self._send_weights([self.config.trained])
            self._log_figures()

    def _log_figures(self) -> None:
        if self.finished or self._figures.updates >= UPDATES_PER_LOG:
            self.metrics.log_dict(self._figures.means(), key=(LEARNER_RESULTS, self.config.trained), window=1)
            self._figures = _Figures()

    def _sample(self) -> list[Chunk]:
        # RLlib's own sampling repeats until there is a step: a real-time game with a problem has none.
        sampled: list[list[Chunk]] = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(), local_env_runner=False, timeout_seconds=self.config.sample_timeout_s
        )
        chunks = [chunk for gathered in sampled for chunk in gathered]
        now = time.monotonic()
        self._tell_of_runners()
        self._tell_of_games(chunks)
        if any(len(chunk.transitions) for chunk in chunks):
            self._last_chunk_s, self._played, self._last_note = now, True, ""
        elif now - self._last_chunk_s > ABANDONED_AFTER_S:
            raise SoulsGraphError(
                f"env runners: expected a live one, found none for {ABANDONED_AFTER_S:g} s"
                f"{self._last_note and f' ({self._last_note})'}; join a game PC and resume the run."
            )
        elif not chunks:
            time.sleep(self.config.env_runner_health_probe_timeout_s)
        return chunks

    @property
    def live_runners(self) -> int:
        """How many remote runners took part in the last round."""
        return self._live_runners

    def _tell_of_runners(self) -> None:
        live = self.env_runner_group.num_healthy_remote_workers()
        if live != self._live_runners:
            told = "an env runner was lost" if live < self._live_runners else "an env runner is back"
            _logger.warning("%s: %s, %d of %d play", self.config.trained, told, live, self.config.num_env_runners)
        self._live_runners = live

    def _tell_of_games(self, chunks: Sequence[Chunk]) -> None:
        """Log problems of real-time games; one that cannot be opened ends a stage that has not played yet."""
        for chunk in chunks:
            for note in (*chunk.notes, chunk.failure):
                if note and note != self._last_note:
                    self._last_note = note
                    _logger.warning("%s: %s", self.config.trained, note)
            if chunk.failure and not self._played:
                raise SoulsGraphError(chunk.failure)

    def _receive(self, chunks: Sequence[Chunk]) -> int:
        """Store chunks up to the budget, dropping the surplus of the last one; return the count."""
        received = 0
        for chunk in chunks:
            self._require_size(chunk)
            transitions = chunk.transitions.first(self.config.hyperparameters.budget - self.decisions)
            self.normalizer.update(transitions.observations)
            self.local_replay_buffer.add(transitions)
            self.decisions += len(transitions)
            received += len(transitions)
            if len(chunk.episodes):
                self._episodes.append(chunk.episodes)
        module = self.learner.trained_module
        module.set_normalizer(self.normalizer.mean, self.normalizer.deviation)
        return received

    def _require_size(self, chunk: Chunk) -> None:
        count, most = len(chunk.transitions), self.config.decisions_per_sample
        if not (1 <= count <= most or (not count and (chunk.notes or chunk.failure))):
            raise SoulsGraphError(
                f"env runner: expected 1 to {most} transitions a sample, found {count}; "
                "use no more lanes than decisions in a round."
            )

    def _learn(self) -> None:
        numbers = self.config.hyperparameters
        owed = numbers.updates_owed(self.decisions, self.updates)
        if owed < 1:
            return
        batch = self.local_replay_buffer.sample(
            owed * numbers.batch_size, self._generator, self.normalizer, self.decisions
        )
        (figures,) = self.learner_group.update(
            batch=as_multi_agent_batch(self.config.trained, batch),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: self.decisions},
        )
        self.updates += owed
        self._figures.add(figures[self.config.trained], owed)
        self.local_replay_buffer.learned(figures[self.config.trained].errors)

    def _send_weights(self, skills: Sequence[str]) -> None:
        weights = {skill: self._module(skill).weights() for skill in skills}
        state = {COMPONENT_RL_MODULE: weights, NUM_ENV_STEPS_SAMPLED_LIFETIME: self.decisions}
        self._runner.set_state(state)
        if self.env_runner_group.num_remote_env_runners():
            self.env_runner_group.foreach_env_runner(
                "set_state", kwargs={"state": state}, local_env_runner=False, timeout_seconds=0.0
            )

    @property
    def _runner(self) -> ChunkRunner:
        runner = self.env_runner_group.local_env_runner
        assert isinstance(runner, ChunkRunner)
        return runner

    def _module(self, skill: str) -> QNetworkModule:
        module = self.learner.module[skill].unwrapped()
        assert isinstance(module, QNetworkModule)
        return module

    def weights(self, skill: str) -> Weights:
        """Return a copy of the weights and normaliser that a skill is played by, by name."""
        own = self.learner.playing_weights() if skill == self.config.trained else self._module(skill).weights()
        return {name: values.copy() for name, values in own.items()}

    def copies(self, skill: str) -> list[Weights]:
        """Return every copy of a frozen skill's weights: the learner's and that of every live runner."""
        played = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.played_weights(skill), timeout_seconds=self.config.sample_timeout_s
        )
        return [self.weights(skill), *played]

    def head_weights(self) -> Weights:
        """Return a copy of the trained skill's head, by name; empty if it is the layer that plays."""
        return {name: values.copy() for name, values in self.learner.playing_head().items()}

    def load_weights(self, weights: Mapping[str, Weights]) -> None:
        """Load trained weights by skill: frozen ones upstream, or those that the trained skill continues from.

        Raises:
            SoulsGraphError: if a name or shape does not match.
        """
        for skill, values in weights.items():
            self._module(skill).load_weights(values)
        self._send_weights(list(weights))

    def load_normalizer(self, state: dict[str, Any]) -> None:
        """Continue from the trained skill's running statistics (`RunningNormalizer.get_state`)."""
        self.normalizer.set_state(state)
        self.learner.trained_module.set_normalizer(self.normalizer.mean, self.normalizer.deviation)
        self._send_weights([self.config.trained])

    def drain_episodes(self) -> Episodes | None:
        """Return the episodes that ended since the last call; None if there were none."""
        episodes, self._episodes = self._episodes, []
        return Episodes.join(episodes) if episodes else None

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
        return {
            "trained": self.config.trained,
            "decisions": self.decisions,
            "updates": self.updates,
            "generator": self._generator.bit_generator.state,
            "normalizer": self.normalizer.get_state(),
            "replay": self.local_replay_buffer.get_state(),
            "learner": self.learner.get_training_state(),
            "frozen": {skill.name: self.weights(skill.name) for skill in self.config.skills[:-1]},
            "runner": self._runner.get_training_state() if sampling else {},
        }

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state` of an algorithm of the same configuration."""
        self.decisions, self.updates = int(state["decisions"]), int(state["updates"])
        self._generator.bit_generator.state = state["generator"]
        self.normalizer.set_state(state["normalizer"])
        self.local_replay_buffer.set_state(state["replay"])
        self.learner.set_training_state(state["learner"])
        for skill, weights in state["frozen"].items():
            self._module(skill).load_weights(weights)
        self._send_weights([skill.name for skill in self.config.skills])
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
        if state["trained"] != self.config.trained:
            raise SoulsGraphError(
                f"{checkpoint_dir}: expected a checkpoint of {self.config.trained}, found {state['trained']}; "
                "remove it, or resume the stage it was written by."
            )
        self.set_training_state(state)
