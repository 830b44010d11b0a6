"""Running observation statistics in float64, as stable-baselines3's VecNormalize keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.errors import SoulsGraphError

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

_EPSILON = 1e-8
_INITIAL_COUNT = 1e-4


@njit(cache=True, error_model="numpy")
def _moments(batch: Floats, mean: Doubles, variance: Doubles) -> None:
    count = batch.shape[0]
    mean[:] = 0.0
    variance[:] = 0.0
    for row in range(count):
        for column in range(batch.shape[1]):
            mean[column] += batch[row, column]
    mean /= count
    for row in range(count):
        for column in range(batch.shape[1]):
            difference = batch[row, column] - mean[column]
            variance[column] += difference * difference
    variance /= count


class RunningNormalizer:
    """Keep the mean and variance of every observed column; all are float64 (size,).

    A constant column keeps a small deviation, so that a value seen later for the first time comes
    out large; the clip that follows every normalisation bounds it.
    """

    def __init__(self, size: int) -> None:
        self.mean: Doubles = np.zeros(size)
        self.variance: Doubles = np.ones(size)
        self.count = _INITIAL_COUNT
        self._batch_mean, self._batch_variance = np.empty(size), np.empty(size)

    @property
    def deviation(self) -> Doubles:
        """The divisor of a normalised observation, (size,): never 0."""
        deviation: Doubles = np.sqrt(self.variance + _EPSILON)
        return deviation

    def update(self, batch: Floats) -> None:
        """Take a batch of raw observations (n, size) into account."""
        if not len(batch):
            return
        _moments(batch, self._batch_mean, self._batch_variance)
        count, total = len(batch), self.count + len(batch)
        change = self._batch_mean - self.mean
        squares = self.variance * self.count + self._batch_variance * count
        self.mean = self.mean + change * count / total
        self.variance = (squares + np.square(change) * self.count * count / total) / total
        self.count = total

    def normalize(self, observations: Floats, clip: float) -> Floats:
        """Normalise raw observations (n, size) and clip them to plus and minus `clip`."""
        normalized = np.clip((observations - self.mean) / self.deviation, -clip, clip)
        return normalized.astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """Give the statistics as arrays and numbers."""
        return {"mean": self.mean.copy(), "variance": self.variance.copy(), "count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`.

        Raises:
            SoulsGraphError: if the state is of observations of another size.
        """
        if state["mean"].shape != self.mean.shape or state["variance"].shape != self.mean.shape:
            raise SoulsGraphError(
                f"observation statistics: expected {self.mean.size} columns, found {state['mean'].size}; "
                "use those of the same skill and observation map."
            )
        self.mean, self.variance = state["mean"].copy(), state["variance"].copy()
        self.count = float(state["count"])
