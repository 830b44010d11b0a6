"""Running observation statistics in float64, as stable-baselines3's VecNormalize keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph_envs.combat.episodes import Doubles, Flags, Floats
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import SoulsGraphError

_EPSILON = 1e-8
_INITIAL_COUNT = 1e-4


@cached(error_model="numpy")
def _update(
    batch: Floats, count_before: float, old_mean: Doubles, old_variance: Doubles, indicators: Flags
) -> tuple[Doubles, Doubles]:
    """Return the mean and variance over all rows: those of the batch and the `count_before` earlier ones."""
    count = batch.shape[0]
    mean, variance = np.zeros_like(old_mean), np.zeros_like(old_mean)
    for row in range(count):
        for column in range(batch.shape[1]):
            mean[column] += batch[row, column]
    mean /= count
    for row in range(count):
        for column in range(batch.shape[1]):
            difference = batch[row, column] - mean[column]
            variance[column] += difference * difference
    variance /= count
    total = count_before + count
    for column in range(batch.shape[1]):
        change = mean[column] - old_mean[column]
        squares = old_variance[column] * count_before + variance[column] * count
        mean[column] = old_mean[column] + change * count / total
        variance[column] = (squares + change * change * count_before * count / total) / total
        if indicators[column]:
            mean[column], variance[column] = 0.0, 1.0
    return mean, variance


class RunningNormalizer:
    """Keep the mean and variance of every observed column; all are float64 (size,).

    A constant column keeps a small deviation, so that a value seen later for the first time comes
    out large; the clip that follows every normalisation bounds it. Where `indicators` (size,) hold,
    the column keeps mean 0 and variance 1, so that an indicator stays 0 or 1: scaled by how rare it is,
    a rare animation would drown all else.
    """

    def __init__(self, size: int, indicators: Flags | None = None) -> None:
        self.mean: Doubles = np.zeros(size)
        self.variance: Doubles = np.ones(size)
        self.count = _INITIAL_COUNT
        self._indicators = np.zeros(size, np.bool_) if indicators is None else indicators

    @property
    def deviation(self) -> Doubles:
        """The divisor of a normalised observation, (size,): never 0."""
        deviation: Doubles = np.sqrt(self.variance + _EPSILON)
        return deviation

    def update(self, batch: Floats) -> None:
        """Update the statistics with a batch of raw observations (n, size)."""
        if not len(batch):
            return
        self.mean, self.variance = _update(batch, self.count, self.mean, self.variance, self._indicators)
        self.count += len(batch)

    def get_state(self) -> dict[str, Any]:
        """Return the statistics as arrays and numbers."""
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
