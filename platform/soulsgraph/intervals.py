"""Confidence intervals of the reports: Wilson's for win rates, Student's t for means."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit


class Interval(NamedTuple):
    """A confidence interval; both ends belong to it."""

    low: float
    high: float


def wilson_interval(wins: int, episodes: int, confidence: float = 0.95) -> Interval:
    """Give the Wilson score interval of a win rate, as ratios in [0, 1]; (0, 1) without an episode."""
    if not episodes:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    rate, scale = wins / episodes, 1.0 + z * z / episodes
    centre = (rate + z * z / (2.0 * episodes)) / scale
    half = z * math.sqrt(rate * (1.0 - rate) / episodes + (z / (2.0 * episodes)) ** 2) / scale
    # At 0 and 1 the interval ends at the rate itself, which rounding may miss.
    return Interval(min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half)))


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Give Student's t interval of the mean of `values` (n,); unbounded for fewer than two values."""
    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(-math.inf, math.inf)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(stdtrit(sample.size - 1, 0.5 + confidence / 2.0)) * error
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)
