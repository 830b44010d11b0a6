"""Confidence intervals, and what several training seeds say together: each is one observation."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


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
    from scipy import special  # Imported where it is used: Wilson's interval is all that the core needs.

    tail = (1.0 - confidence) / 2.0
    low = float(special.betaincinv(wins, episodes - wins + 1, tail)) if wins else 0.0
    high = float(special.betaincinv(wins + 1, episodes - wins, 1.0 - tail)) if wins < episodes else 1.0
    return Interval(low, high)


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return Student's t interval of the mean of `values` (n,); unbounded for fewer than two values."""
    from scipy import special

    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(-math.inf, math.inf)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(special.stdtrit(sample.size - 1, 0.5 + confidence / 2.0)) * error
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def deviation_interval(values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the chi-square interval of the standard deviation of normal `values` (n,).

    It is [0, infinity] for fewer than two values.
    """
    from scipy import special

    sample = np.asarray(values, np.float64)
    if sample.size < 2:
        return Interval(0.0, math.inf)
    freedom, tail = sample.size - 1, (1.0 - confidence) / 2.0
    squares = float(((sample - sample.mean()) ** 2).sum())
    # `chdtri` inverts the upper tail, so a small probability gives the large quantile.
    low, high = (math.sqrt(squares / float(special.chdtri(freedom, upper))) for upper in (tail, 1.0 - tail))
    return Interval(low, high)


#: Resamples of a bootstrap interval, and the seed that makes a report the same each time it is written.
RESAMPLES, BOOTSTRAP_SEED = 10_000, 2021
Values = npt.NDArray[np.float64]


def interquartile_mean(scores: npt.ArrayLike) -> float:
    """Return the mean of the middle half of all scores (Agarwal et al. 2021, rliable)."""
    from scipy import stats

    return float(stats.trim_mean(np.asarray(scores, np.float64), 0.25, axis=None))


def interquartile_mean_interval(scores: npt.ArrayLike, confidence: float = 0.95) -> Interval:
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
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(stats.trim_mean(resampled, 0.25, axis=1), [tail, 100.0 - tail])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Spread:
    """One number per seed, and their statistics; an interval of one seed is unbounded."""

    by_seed: Mapping[int, float]

    @cached_property
    def values(self) -> npt.NDArray[np.float64]:
        """The numbers in the order of their seeds, (seeds,)."""
        return np.array([self.by_seed[seed] for seed in sorted(self.by_seed)], np.float64)

    @cached_property
    def median(self) -> float:
        """Median over seeds, which is compared with the expected range."""
        return float(np.median(self.values))

    @cached_property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(self.values.mean())

    @cached_property
    def mean_interval(self) -> Interval:
        """Student's t interval of the mean over seeds."""
        return mean_interval(self.values)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation over seeds; NaN for one seed."""
        return float(self.values.std(ddof=1)) if self.values.size > 1 else float("nan")

    @cached_property
    def deviation_interval(self) -> Interval:
        """Chi-square interval of the standard deviation."""
        return deviation_interval(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values."""
        return {
            "seeds": len(self.by_seed),
            "median": self.median,
            "mean": self.mean,
            **self.mean_interval.columns("mean_"),
            "interquartile_mean": interquartile_mean(self.values),
            **interquartile_mean_interval(self.values).columns("interquartile_mean_"),
            "deviation": self.deviation,
            **self.deviation_interval.columns("deviation_"),
        }


def paired_difference(first: Spread | None, second: Spread | None) -> Spread | None:
    """Return first - second of every seed that both have, None if they share no seed or one is missing."""
    return _paired(operator.sub, first, second)


def paired_ratio(first: Spread | None, second: Spread | None) -> Spread | None:
    """Return first / second of every seed that both have and where second is not 0, None if there is none."""
    divisors = second and Spread({seed: value for seed, value in second.by_seed.items() if value})
    return _paired(operator.truediv, first, divisors)


def _paired(combine: Callable[[float, float], float], first: Spread | None, second: Spread | None) -> Spread | None:
    if first is None or second is None:
        return None
    shared = sorted(first.by_seed.keys() & second.by_seed.keys())
    return Spread({seed: combine(first.by_seed[seed], second.by_seed[seed]) for seed in shared}) if shared else None


@dataclass(frozen=True)
class WinCount:
    """Episodes won of those that one agent played."""

    wins: int
    episodes: int

    @property
    def percent(self) -> float:
        """Share of episodes won in percent; 0 without an episode."""
        return 100.0 * self.wins / self.episodes if self.episodes else 0.0

    @property
    def wilson(self) -> Interval:
        """Wilson 95 % interval in percent."""
        return wilson_interval(self.wins, self.episodes).scaled(100.0)

    @property
    def clopper_pearson(self) -> Interval:
        """Exact 95 % interval in percent."""
        return clopper_pearson_interval(self.wins, self.episodes).scaled(100.0)


@dataclass(frozen=True)
class SettingRates:
    """One row of a table of win rates: a setting, played by the agent of every seed."""

    label: str
    part: str
    scenario: str
    start: str
    #: What the paper reports for the setting, None for a setting that it lacks.
    paper_percent: float | None
    seeds: Mapping[int, WinCount]

    @cached_property
    def spread(self) -> Spread:
        """The win rates in percent over seeds."""
        return Spread({seed: count.percent for seed, count in self.seeds.items()})


@dataclass(frozen=True)
class SeedCurves:
    """One quantity of every seed over common steps: `steps` (points,), `values` (seeds, points)."""

    seeds: tuple[int, ...]
    steps: Values
    values: Values

    @property
    def mean(self) -> Values:
        """Mean over seeds, (points,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def interval(self) -> tuple[Values, Values] | None:
        """Ends of Student's t interval of the mean over seeds, each (points,); None for one seed."""
        if len(self.seeds) < 2:
            return None
        low, high = np.array([mean_interval(column) for column in self.values.T]).T
        return low, high


def seed_curves(records: Iterable[Mapping[str, Any]], column: str, **chosen: str) -> SeedCurves | None:
    """Gather one column of the records that match `chosen` in other columns; None if there is none.

    Seeds recorded at other steps than the first one are interpolated at its steps, up to the last step of all.
    """
    points: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        value = record[column]
        if chosen.items() <= record.items() and value is not None and math.isfinite(value):
            points[int(record["seed"])].append((float(record["step"]), float(value)))
    if not points:
        return None
    tables = {seed: np.array(sorted(points[seed])).T for seed in sorted(points)}
    begin, end = max(table[0, 0] for table in tables.values()), min(table[0, -1] for table in tables.values())
    first = next(iter(tables.values()))[0]
    steps = first[(first >= begin) & (first <= end)]
    if not steps.size:
        return None
    return SeedCurves(tuple(tables), steps, np.stack([np.interp(steps, *table) for table in tables.values()]))


def moving_average(values: Values, width: int) -> Values:
    """Average each point with up to `width` - 1 points before it; `values` (..., points)."""
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    ends = np.arange(1, values.shape[-1] + 1)
    begins = np.maximum(ends - width, 0)
    return np.asarray((sums[..., ends] - sums[..., begins]) / (ends - begins))
