"""What several training seeds say together: each is one observation, and their episodes are never pooled.

Outcomes are frames with a column `seed` beside those that say what was evaluated; `summary` has a row for each group.
One quantity of every seed is a series by seed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from soulsgraph.results import statistics
from soulsgraph.results.tables import Table, finite, number, readable_table, seeds_text, with_interval

Values = npt.NDArray[np.float64]
Rows = Sequence[Mapping[str, Any]]
#: All figures over seeds, under their own names.
FIGURES = {name: name for name in ("seeds", "median", "mean", "interquartile_mean", "deviation")}
_INTERVALS = {
    "mean": statistics.mean_interval,
    "interquartile_mean": statistics.interquartile_mean_interval,
    "deviation": statistics.deviation_interval,
}
#: Of what nobody measured.
NO_SEEDS = pd.Series(dtype=float)
#: Values that differ by less, relative to their size or to 1, are equal.
_ROUNDING = 1e-12


def figures_of(values: pd.Series, names: Mapping[str, str] = FIGURES) -> dict[str, Any]:
    """Return figures over seeds as columns of a row, by the column's name; those with an interval have its ends beside.

    `values` has one number per seed; figures are those of `FIGURES`. An interval of one seed is unbounded. Without a
    seed all but their number are None, or unbounded.
    """
    known = values.to_numpy(np.float64)
    made: dict[str, Callable[[], Any]] = {
        "seeds": lambda: len(known),
        "median": lambda: float(np.median(known)),
        "mean": lambda: float(known.mean()),
        "interquartile_mean": lambda: statistics.interquartile_mean(known),
        "deviation": lambda: float(known.std(ddof=1)) if len(known) > 1 else math.nan,
    }
    row: dict[str, Any] = {}
    for figure, name in names.items():
        row[name] = made[figure]() if len(known) or figure == "seeds" else None
        if figure in _INTERVALS:
            row |= _INTERVALS[figure](known).columns(f"{name}_")
    return row


def mean_text(values: pd.Series) -> str:
    """Return the mean over seeds with its t interval, for readers; a dash without a seed."""
    return with_interval(values.mean(), statistics.mean_interval(values))


def difference(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return first - second of every seed that both have.

    What only rounding left is 0: two means of the same shares, summed otherwise, are equal.
    """
    first, second = first.align(second, join="inner")
    equal = np.isclose(first, second, rtol=_ROUNDING, atol=_ROUNDING)
    return (first - second).mask(equal, 0.0)


def ratio(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return first / second of every seed that both have and where second is not 0."""
    return (first / second[second != 0.0]).dropna()


def difference_columns(first: pd.Series, second: pd.Series) -> dict[str, Any]:
    """Return the figures of first - second, paired by seed, and for how many it is above and below 0.

    Of values that share no seed there is their number alone.
    """
    apart = difference(first, second)
    if apart.empty:
        return {"seeds": 0}
    return {**figures_of(apart), "seeds_above": int((apart > 0.0).sum()), "seeds_below": int((apart < 0.0).sum())}


def by_seed_frame(results: Mapping[int, Rows]) -> pd.DataFrame:
    """Return the rows of every seed as one frame, `seed` in the first column."""
    return pd.DataFrame([{"seed": seed, **row} for seed, rows in results.items() for row in rows])


def seed_values(frame: pd.DataFrame, value: str) -> pd.Series:
    """Return a column of a frame by seed, in order; rows without a value are left out."""
    return frame.set_index("seed")[value].dropna().astype(float).sort_index()


def summary(frame: pd.DataFrame, by: Sequence[str], value: str, figures: Mapping[str, str] = FIGURES) -> pd.DataFrame:
    """Return figures over seeds of a column, a row for each group of the columns `by`.

    Groups stand in the order of their first rows; `figures` has the name of each figure's column.
    """
    groups = frame.groupby([*by], sort=False, dropna=False)
    return pd.DataFrame(
        [dict(zip(by, key, strict=True)) | figures_of(seed_values(group, value), figures) for key, group in groups]
    )


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain values; what is missing or unbounded is None."""
    return [finite(row) for row in frame.to_dict("records")]


#: What `figure_cells` has.
FIGURE_HEADINGS = ("median", "mean (t interval)", "interquartile mean (bootstrap)", "deviation (chi-square)")


def figure_cells(row: Mapping[str, Any], digits: int = 1) -> list[str]:
    """Return the median, and mean, interquartile mean and deviation with their intervals, as texts."""
    return [f"**{number(row['median'], digits)}**", *(interval_cell(row, name, digits) for name in _INTERVALS)]


def interval_cell(row: Mapping[str, Any], value: str, digits: int = 1) -> str:
    """Return a row's value with its interval as text; empty where the row has none."""
    if value not in row:
        return ""
    return with_interval(row[value], statistics.Interval(row[f"{value}_low"], row[f"{value}_high"]), digits)


def seed_tables(title: str, frame: pd.DataFrame, summed: pd.DataFrame) -> list[Table]:
    """Return a summary over the seeds of a frame, and below it every seed's rows."""
    counted = seeds_text(frame["seed"].nunique())
    return [readable_table(f"{title}, {counted}", records(summed)), readable_table("Each seed", records(frame))]


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
        low, high = np.array([statistics.mean_interval(column) for column in self.values.T]).T
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
