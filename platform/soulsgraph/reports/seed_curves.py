"""Curves of several seeds on common steps, and what they say together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.intervals import mean_interval

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeedCurves:
    """One figure of every seed over common steps: `steps` (points,), `values` (seeds, points)."""

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
    """Gather one column of the records whose other columns are as `chosen`; None if there is none.

    Seeds that were recorded at other steps than the first one are interpolated at its steps, as far as all reach.
    """
    points: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        value = record[column]
        if (
            all(record[name] == wanted for name, wanted in chosen.items())
            and value is not None
            and math.isfinite(value)
        ):
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
