"""Experience replay: one float32 matrix of raw transitions, normalised as they are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.transitions import Transitions

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# Columns behind the two observations.
_REWARD, _TERMINATED, _ACTION, _EXTRA = 0, 1, 2, 3


@dataclass(frozen=True)
class Batch:
    """Sampled transitions with normalised, clipped observations; (n, size) or (n,) each."""

    observations: Floats
    next_observations: Floats
    actions: Integers
    rewards: Floats
    terminated: Floats

    def part(self, start: int, end: int) -> Batch:
        """Give the rows from `start` to `end`, as views."""
        return Batch(*(values[start:end] for values in vars(self).values()))


@njit(cache=True, error_model="numpy")
def _gather(
    rows: Floats,
    indices: Integers,
    statistics: tuple[Doubles, Doubles],
    clip: float,
    out: tuple[Floats, Floats, Integers, Floats, Floats],
) -> None:
    mean, deviation = statistics
    inverse = 1.0 / deviation
    observations, next_observations, actions, rewards, terminated = out
    size = mean.shape[0]
    for i in range(indices.shape[0]):
        row = indices[i]
        for column in range(size):
            value = (rows[row, column] - mean[column]) * inverse[column]
            observations[i, column] = min(max(value, -clip), clip)
        for column in range(size):
            value = (rows[row, size + column] - mean[column]) * inverse[column]
            next_observations[i, column] = min(max(value, -clip), clip)
        rewards[i] = rows[row, 2 * size + _REWARD]
        terminated[i] = rows[row, 2 * size + _TERMINATED]
        actions[i] = np.int64(rows[row, 2 * size + _ACTION])


class ReplayRing:
    """Keep the latest `capacity` transitions of one skill, observations (size,) raw."""

    def __init__(self, capacity: int, observation_size: int) -> None:
        self.capacity, self.size = capacity, 0
        self._position = 0
        self._observation_size = observation_size
        self._rows: Floats = np.zeros((capacity, 2 * observation_size + _EXTRA), np.float32)

    def add(self, transitions: Transitions) -> None:
        """Store transitions in their order, over the oldest once the ring is full."""
        count, size = len(transitions), self._observation_size
        places = (self._position + np.arange(count)) % self.capacity
        self._rows[places, :size] = transitions.observations
        self._rows[places, size : 2 * size] = transitions.next_observations
        self._rows[places, 2 * size + _REWARD] = transitions.rewards
        self._rows[places, 2 * size + _TERMINATED] = transitions.terminated
        self._rows[places, 2 * size + _ACTION] = transitions.actions
        self._position = (self._position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, count: int, generator: np.random.Generator, normalizer: RunningNormalizer, clip: float) -> Batch:
        """Draw `count` transitions uniformly, with replacement, normalised by today's statistics.

        Raises:
            SoulsGraphError: if the ring is empty.
        """
        if not self.size:
            raise SoulsGraphError("replay: expected transitions to sample from, found none; add some first.")
        indices = generator.integers(0, self.size, count)
        shape = (count, self._observation_size)
        batch = Batch(
            observations=np.empty(shape, np.float32),
            next_observations=np.empty(shape, np.float32),
            actions=np.empty(count, np.int64),
            rewards=np.empty(count, np.float32),
            terminated=np.empty(count, np.float32),
        )
        statistics = (normalizer.mean, normalizer.deviation)
        out = (batch.observations, batch.next_observations, batch.actions, batch.rewards, batch.terminated)
        _gather(self._rows, indices, statistics, clip, out)
        return batch

    def get_state(self) -> dict[str, Any]:
        """Give everything that later samples depend on; rows not yet written are left out."""
        return {"rows": self._rows[: self.size].copy(), "position": self._position}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`.

        Raises:
            SoulsGraphError: if the state does not fit this ring.
        """
        rows, width = state["rows"], self._rows.shape[1]
        if rows.ndim != 2 or rows.shape[1] != width or len(rows) > self.capacity:
            raise SoulsGraphError(
                f"replay: expected at most {self.capacity} rows of {width} values, found {rows.shape}; "
                "resume with the plan that the run was started with."
            )
        self.size, self._position = len(rows), int(state["position"])
        self._rows[: self.size] = rows
