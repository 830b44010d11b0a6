"""The trained skill's transitions in columns, as a sampler passes them to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.episodes import Episodes


@dataclass(frozen=True)
class Transitions:
    """Finished decisions of the trained skill, (n,) or (n, size) each; observations are raw.

    `next_observations` are the last observations of an episode where it ended. `terminated` marks deaths
    and wins only: a horizon bootstraps. `ticks` are the control ticks of a decision. Decisions of the
    same lane and episode follow each other; lanes are numbered over all runners.
    """

    observations: npt.NDArray[np.float32]
    next_observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    ticks: npt.NDArray[np.int64]
    lanes: npt.NDArray[np.int64]
    episodes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions)

    def first(self, count: int) -> Transitions:
        """Return the first `count` transitions."""
        if count >= len(self):
            return self
        return Transitions(*(getattr(self, field.name)[:count] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Transitions]) -> Transitions:
        """Join one or more parts in their order."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @classmethod
    def none(cls, size: int) -> Transitions:
        """Return no transitions, for a skill that observes `size` values."""
        observations, whole = np.zeros((0, size), np.float32), np.zeros(0, np.int64)
        rewards, flags = np.zeros(0, np.float32), np.zeros(0, np.bool_)
        return cls(observations, observations, whole, rewards, flags, whole, whole, whole)


@dataclass(frozen=True)
class Chunk:
    """The result of one call of an env runner's `sample`: transitions, and the episodes that ended meanwhile.

    `lane_ticks` counts the control ticks it took, summed over the lanes; `notes` are a real-time
    game's problems, `failure` why it cannot be opened. Without either there is at least one transition.
    """

    transitions: Transitions
    episodes: Episodes
    lane_ticks: int
    notes: tuple[str, ...] = ()
    failure: str = ""

    def env_steps(self) -> int:
        """Count the steps, under the name by which RLlib asks: decisions of the trained skill."""
        return len(self.transitions)
