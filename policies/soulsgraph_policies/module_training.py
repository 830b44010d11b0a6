"""What the driver keeps for a module that learns: replay, normaliser, generator and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY, TD_ERROR_MEAN_KEY

from soulsgraph_policies.preprocess import RunningNormalizer
from soulsgraph_policies.replay import Batch, ReplayRing
from soulsgraph_policies.sampler import Transitions
from soulsgraph_policies.stage_config import SkillDQNConfig
from soulsgraph_policies.update_kernel import UpdateFigures

#: Updates over which loss and Q-values are averaged before they are logged.
UPDATES_PER_LOG = 125


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


class ModuleTraining:
    """A module that learns: its replay, normaliser, generator and clocks, all counting its own decisions.

    `place` counts modules from the last one on, which draws by the seed itself.
    """

    def __init__(self, config: SkillDQNConfig, name: str, place: int) -> None:
        self.name, self.hyperparameters = name, config.hyperparameters_of(name)
        observation = config.skills_of(name)[0].observation
        self.replay = ReplayRing(self.hyperparameters, observation.size, config.mirror_of(name))
        self.normalizer = RunningNormalizer(observation.size, observation.indicators)
        # numpy pads with zeros: of place 0 the seed alone is left.
        seed = config.stage_seed
        self._generator = np.random.Generator(np.random.PCG64(None if seed is None else [seed, place]))
        self.decisions, self.updates = 0, 0
        self._figures = _Figures()

    @property
    def finished(self) -> bool:
        """Whether the whole budget was received."""
        return self.decisions >= self.hyperparameters.budget

    @property
    def exploration_rate(self) -> float:
        """The share of random actions at this count of decisions."""
        return self.hyperparameters.exploration_rate(self.decisions)

    @property
    def owed(self) -> int:
        """The number of updates owed."""
        return max(self.hyperparameters.updates_owed(self.decisions, self.updates), 0)

    def receive(self, transitions: Transitions) -> int:
        """Store transitions up to the budget, drop the surplus, and return the count."""
        received = transitions.first(self.hyperparameters.budget - self.decisions)
        self.normalizer.update(received.observations)
        self.replay.add(received)
        self.decisions += len(received)
        return len(received)

    def draw(self, updates: int) -> Batch:
        """Sample the transitions of this number of updates."""
        count = updates * self.hyperparameters.batch_size
        return self.replay.sample(count, self._generator, self.normalizer, self.decisions)

    def learned(self, figures: UpdateFigures, updates: int) -> None:
        """Count updates that were taken, with what the learner reports of them."""
        self.updates += updates
        self._figures.add(figures, updates)
        self.replay.learned(figures.errors)

    def figures(self) -> dict[str, float] | None:
        """Return means of the learner's figures once there are enough updates, or at the end; else None."""
        if not self.finished and self._figures.updates < UPDATES_PER_LOG:
            return None
        means, self._figures = self._figures.means(), _Figures()
        return means

    def get_state(self) -> dict[str, Any]:
        """Return everything that later batches depend on, as nested arrays and plain values."""
        return {
            "decisions": self.decisions,
            "updates": self.updates,
            "generator": self._generator.bit_generator.state,
            "normalizer": self.normalizer.get_state(),
            "replay": self.replay.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self.decisions, self.updates = int(state["decisions"]), int(state["updates"])
        self._generator.bit_generator.state = state["generator"]
        self.normalizer.set_state(state["normalizer"])
        self.replay.set_state(state["replay"])
