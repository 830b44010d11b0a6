"""What a calibration finds of one value: an estimate, a 95 % interval, how many observations, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

#: *determined*: the interval is narrow; *bounded*: it is wide, the estimate leans on the shipped value; *doubtful*:
#: found by readings that contradict each other; *not determined*: nothing was seen; *unlike the model*: what was
#: seen is none of what this model can do.
Verdict = Literal["determined", "bounded", "doubtful", "not determined", "unlike the model"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: How far a 95 % interval may go from the estimate, as a share of it, for a value to be determined, and by how many
#: observations.
NARROW, _FEWEST = 0.08, 3
#: A value near 0 is determined by an absolute width too, in its own unit.
_NARROW_ABSOLUTE = 1e-3


@dataclass(frozen=True)
class ValueFit:
    """One value of the boss or the player: its key as `moves.spin.windows.0.reach_m`, its kind, and what is known.

    Times and damage are as the game shows them, the boss's factors in them. Numbers are None where nobody knows them.
    """

    key: str
    kind: str
    shipped: float | None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    verdict: Verdict = "not determined"

    @property
    def known(self) -> bool:
        """Whether the estimate is written to the file."""
        return self.estimate is not None and self.verdict in ("determined", "bounded", "doubtful")

    @property
    def holds_shipped(self) -> bool:
        """Whether there is a shipped value that its interval, open where an end is not known, holds."""
        low, high = -inf if self.low is None else self.low, inf if self.high is None else self.high
        return self.shipped is not None and low <= self.shipped <= high

    @property
    def differs(self) -> bool:
        """Whether it is determined, and its interval does not hold the shipped value."""
        return self.verdict == "determined" and self.shipped is not None and not self.holds_shipped

    def fit(self, estimate: float, interval: tuple[float, float], count: int, unlike: bool = False) -> ValueFit:
        """Return the value as it was found, with the verdict that its interval calls for."""
        low, high = min(interval[0], estimate), max(interval[1], estimate)
        if not (count and isfinite(estimate)):
            return replace(self, count=count)
        bounds = (low if isfinite(low) else None, high if isfinite(high) else None)
        # An interval may lie on one side of its estimate.
        off = max(high - estimate, estimate - low)
        narrow = off <= max(NARROW * abs(estimate), _NARROW_ABSOLUTE)
        verdict: Verdict = "determined" if narrow and count >= _FEWEST else "bounded"
        verdict = "unlike the model" if unlike else verdict
        return ValueFit(self.key, self.kind, self.shipped, estimate, *bounds, count, verdict)


def middle(values: npt.ArrayLike, least: float = 0.0) -> tuple[float, tuple[float, float], float]:
    """Return the median of values (n,), its 95 % interval of at least +-`least`, and their typical deviation.

    The interval is that of order statistics under the binomial distribution, which asks nothing of the values' own.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    if not count:
        return np.nan, (-inf, inf), np.nan
    median = float(np.median(ordered))
    reach = 0.5 * 1.96 * count**0.5
    low, high = int(np.floor(0.5 * count - reach)), int(np.ceil(0.5 * count + reach))
    spread = float(1.4826 * np.median(np.abs(ordered - median)))
    # Of a few values the ends are the interval, widened by their spread.
    bounds = (
        float(ordered[max(low, 0)]) - (spread if low < 0 else 0.0),
        float(ordered[min(high, count - 1)]) + (spread if high > count - 1 else 0.0),
    )
    return median, (min(bounds[0], median - least), max(bounds[1], median + least)), spread


#: Headings of a table of values.
VALUE_HEADINGS = ("value", "shipped", "found", "95 % interval", "seen", "verdict")


def value_cells(value: ValueFit) -> tuple[str, ...]:
    """Return a value as the cells of a table."""
    low, high = _cell(value.low), _cell(value.high)
    interval = f"{low} to {high}" if value.estimate is not None else ""
    return value.key, _cell(value.shipped), _cell(value.estimate), interval, str(value.count), value.verdict


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"
