"""Confidence intervals of the reports: of win rates, and of means and deviations over seeds."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, chdtri, stdtrit


class Interval(NamedTuple):
    """A confidence interval; both ends belong to it."""

    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return the interval in other units, as of ratios in percent."""
        return Interval(self.low * factor, self.high * factor)

    def overlaps(self, other: Interval) -> bool:
        """Return whether the two share a value."""
        return self.low <= other.high and other.low <= self.high


def wilson_interval(wins: int, episodes: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a win rate, as ratios in [0, 1]; (0, 1) without an episode."""
    if not episodes:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    rate, scale = wins / episodes, 1.0 + z * z / episodes
    centre = (rate + z * z / (2.0 * episodes)) / scale
    half = z * math.sqrt(rate * (1.0 - rate) / episodes + (z / (2.0 * episodes)) ** 2) / scale
    # At 0 and 1 the interval ends at the rate itself, which rounding may miss.
    return Interval(min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half)))


def clopper_pearson_interval(wins: int, episodes: int, confidence: float = 0.95) -> Interval:
    """Return the exact binomial interval of a win rate (Clopper & Pearson 1934); (0, 1) without an episode."""
    tail = (1.0 - confidence) / 2.0
    low = float(betaincinv(wins, episodes - wins + 1, tail)) if wins else 0.0
    high = float(betaincinv(wins + 1, episodes - wins, 1.0 - tail)) if wins < episodes else 1.0
    return Interval(low, high)


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return Student's t interval of the mean of `values` (n,); unbounded for fewer than two values."""
    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(-math.inf, math.inf)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(stdtrit(sample.size - 1, 0.5 + confidence / 2.0)) * error
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def deviation_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the chi-square interval of the standard deviation of normal `values` (n,).

    It is [0, infinity] for fewer than two values.
    """
    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(0.0, math.inf)
    freedom, tail = sample.size - 1, (1.0 - confidence) / 2.0
    squares = float(((sample - sample.mean()) ** 2).sum())
    # `chdtri` inverts the upper tail, so a small probability gives the large quantile.
    low, high = (math.sqrt(squares / float(chdtri(freedom, upper))) for upper in (tail, 1.0 - tail))
    return Interval(low, high)
