"""The bare work beside a benchmark, in the same rounds: an update's products by numpy's BLAS, a sweep over memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from soulsgraph_envs.simulator.layout import FRAMES_PER_S, LANE

_TICKS_PER_S = 10


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of measurements, the lowest and the highest."""
    return {"median": median(values), "lowest": min(values), "highest": max(values)}


class UpdateProducts:
    """The matrix products of DQN updates alone, by numpy's BLAS: forward twice, and backward.

    `sizes` are those of the network's layers, inputs and actions included.
    """

    def __init__(self, sizes: Sequence[int], batch_size: int) -> None:
        random = np.random.default_rng(0)
        self.done = 0
        shapes = [
            ((batch_size, inputs), (inputs, outputs), (batch_size, outputs)) for inputs, outputs in pairwise(sizes)
        ]
        self._layers = [[random.random(shape, np.float32) for shape in layer] for layer in shapes]

    def run(self, updates: int) -> None:
        """Compute the products of this number of updates."""
        for _ in range(updates):
            for rows, weight, result in self._layers:
                np.matmul(rows, weight, out=result)
                np.matmul(rows, weight, out=result)
                rows.T @ result
            for _, weight, result in self._layers[1:]:
                result @ weight.T
        self.done += updates


class MemorySweep:
    """Read and write what the simulator keeps of each lane, once a frame."""

    def __init__(self, lanes: int) -> None:
        self.lane_ticks, self._lanes = 0, lanes
        self._values = np.zeros(lanes * LANE.itemsize // 4, np.float32)

    def run(self, ticks: int) -> None:
        """Sweep over every lane for a number of control ticks."""
        for _ in range(ticks * FRAMES_PER_S // _TICKS_PER_S):
            np.add(self._values, np.float32(1.0), out=self._values)
        self.lane_ticks += ticks * self._lanes
