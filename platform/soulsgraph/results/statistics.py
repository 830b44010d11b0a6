"""Confidence intervals, tests and win rates.

Win rates with Wilson's interval need no scipy; what needs it imports it when it is called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: That of every interval, and what it leaves out at each end.
CONFIDENCE = 0.95
TAIL = (1.0 - CONFIDENCE) / 2.0


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

    def columns(self, prefix: str = "") -> dict[str, float]:
        """Return the ends as columns of a row, `<prefix>low` and `<prefix>high`."""
        return {f"{prefix}low": self.low, f"{prefix}high": self.high}


def wilson_interval(wins: int, episodes: int) -> Interval:
    """Return the Wilson score interval of a win rate, as ratios in [0, 1]; (0, 1) without an episode."""
    if not episodes:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(1.0 - TAIL)
    rate, scale = wins / episodes, 1.0 + z * z / episodes
    centre = (rate + z * z / (2.0 * episodes)) / scale
    half = z * math.sqrt(rate * (1.0 - rate) / episodes + (z / (2.0 * episodes)) ** 2) / scale
    # At 0 and 1 the interval ends at the rate itself, which rounding may miss.
    return Interval(min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half)))


@dataclass(frozen=True)
class WinRate:
    """Episodes won of those that were played, in which setting, and the paper's win rate there in percent."""

    wins: int
    episodes: int
    setting: str = ""
    paper_percent: float | None = None

    @classmethod
    def of(cls, won: npt.NDArray[np.bool_], setting: str = "", paper_percent: float | None = None) -> WinRate:
        """Return the win rate of episodes, won or not (episodes,)."""
        return cls(int(won.sum()), len(won), setting, paper_percent)

    @property
    def rate(self) -> float:
        """Share of episodes won; 0 without an episode."""
        return self.wins / self.episodes if self.episodes else 0.0

    @property
    def percent(self) -> float:
        """Share of episodes won in percent; 0 without an episode."""
        return 100.0 * self.wins / self.episodes if self.episodes else 0.0

    @property
    def interval(self) -> Interval:
        """Wilson 95 % interval of the rate."""
        return wilson_interval(self.wins, self.episodes)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text: setting, wins, rate, interval and the paper's rate."""
        low, high = self.interval
        paper = "" if self.paper_percent is None else f"{self.paper_percent:.1f} %"
        interval = f"{100 * low:.1f}-{100 * high:.1f} %"
        return (self.setting, f"{self.wins}/{self.episodes}", f"{100 * self.rate:.1f} %", interval, paper)

    def columns(self) -> dict[str, Any]:
        """Return the counts, the rate and its interval as plain values; rates and interval ends are ratios."""
        return {"wins": self.wins, "episodes": self.episodes, "rate": self.rate, **self.interval.columns()}

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; the paper's rate is in percent."""
        return {"setting": self.setting, **self.columns(), "paper_percent": self.paper_percent}


def clopper_pearson_interval(wins: int, episodes: int) -> Interval:
    """Return the exact binomial interval of a win rate (Clopper & Pearson 1934); (0, 1) without an episode."""
    from scipy import special  # Imported where it is used: Wilson's interval is all that the core needs.

    low = float(special.betaincinv(wins, episodes - wins + 1, TAIL)) if wins else 0.0
    high = float(special.betaincinv(wins + 1, episodes - wins, 1.0 - TAIL)) if wins < episodes else 1.0
    return Interval(low, high)


def mean_interval(values: npt.ArrayLike) -> Interval:
    """Return Student's t interval of the mean of `values` (n,); unbounded for fewer than two values."""
    from scipy import special

    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(-math.inf, math.inf)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(special.stdtrit(sample.size - 1, 1.0 - TAIL)) * error
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def welch_interval(first: npt.ArrayLike, second: npt.ArrayLike) -> Interval:
    """Return Welch's t interval (1947) of the difference of the means of `first` (n,) and `second` (m,).

    It is unbounded where either has fewer than two values.
    """
    from scipy import stats

    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if min(a.size, b.size) < 2:
        return Interval(-math.inf, math.inf)
    if a.std() == b.std() == 0.0:
        return Interval(*(float(a.mean() - b.mean()),) * 2)
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(float(low), float(high))


def mean_test(values: npt.ArrayLike) -> float:
    """Return the p value of Student's two-sided t test of a mean of 0 of `values` (n,), as of paired differences.

    nan for fewer than two values.
    """
    from scipy import stats

    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return math.nan
    # Without scatter the statistic is infinite, or of zeros not defined.
    if np.ptp(sample) == 0.0:
        return float(sample[0] == 0.0)
    return float(stats.ttest_1samp(sample, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's step-down rule (Holm 1979)."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(count)
    stepped = np.asarray(p_values, np.float64)[order] * (count - np.arange(count))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(p) for p in adjusted]


def deviation_interval(values: npt.ArrayLike) -> Interval:
    """Return the chi-square interval of the standard deviation of normal `values` (n,).

    It is [0, infinity] for fewer than two values.
    """
    from scipy import special

    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(0.0, math.inf)
    freedom = sample.size - 1
    squares = float(((sample - sample.mean()) ** 2).sum())
    # `chdtri` inverts the upper tail, so a small probability gives the large quantile.
    low, high = (math.sqrt(squares / float(special.chdtri(freedom, upper))) for upper in (TAIL, 1.0 - TAIL))
    return Interval(low, high)


#: Resamples of a bootstrap interval, and the seed that makes a report the same each time it is written.
RESAMPLES, BOOTSTRAP_SEED = 10_000, 2021


def interquartile_mean(scores: npt.ArrayLike) -> float:
    """Return the mean of the middle half of all scores (Agarwal et al. 2021, rliable)."""
    from scipy import stats

    return float(stats.trim_mean(np.asarray(scores, np.float64), 0.25, axis=None))


def interquartile_mean_interval(scores: npt.ArrayLike) -> Interval:
    """Return the stratified bootstrap interval of the interquartile mean (Agarwal et al. 2021, rliable).

    `scores` are (seeds,) or (seeds, settings): seeds are resampled within each setting, the percentiles
    of `RESAMPLES` interquartile means over all settings bound the interval. Unbounded for one seed.
    """
    from scipy import stats

    table = np.asarray(scores, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if len(table) < 2:
        return Interval(-np.inf, np.inf)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = generator.integers(len(table), size=(RESAMPLES, *table.shape))
    resampled = np.take_along_axis(table[None], drawn, axis=1).reshape(RESAMPLES, -1)
    ends = [100.0 * TAIL, 100.0 - 100.0 * TAIL]
    low, high = np.percentile(stats.trim_mean(resampled, 0.25, axis=1), ends)
    return Interval(float(low), float(high))
