"""What several training seeds say together: each is one observation, and their episodes are never pooled.

Outcomes are frames with a column `seed` beside those that say what was evaluated; `summary` has a row for each group.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.table import Table

from soulsgraph.results import statistics
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import (
    finite,
    number,
    readable_table,
    seeds_text,
    text_table,
    with_interval,
    write_results,
    write_rows,
)

Values = npt.NDArray[np.float64]
Rows = Sequence[Mapping[str, Any]]
#: All figures over seeds, under their own names.
FIGURES = {name: name for name in ("seeds", "median", "mean", "interquartile_mean", "deviation")}
_WITH_INTERVAL = ("mean", "interquartile_mean", "deviation")
#: Values that differ by less, relative to their size or to 1, are equal.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SeedValues:
    """One number per seed, and their statistics; an interval of one seed is unbounded."""

    by_seed: Mapping[int, float]

    @cached_property
    def values(self) -> Values:
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
    def mean_interval(self) -> statistics.Interval:
        """Student's t interval of the mean over seeds."""
        return statistics.mean_interval(self.values)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation over seeds; NaN for one seed."""
        return float(self.values.std(ddof=1)) if self.values.size > 1 else float("nan")

    @cached_property
    def deviation_interval(self) -> statistics.Interval:
        """Chi-square interval of the standard deviation."""
        return statistics.deviation_interval(self.values)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.by_seed)

    @cached_property
    def interquartile_mean(self) -> float:
        """Mean of the middle half of the seeds."""
        return statistics.interquartile_mean(self.values)

    @cached_property
    def interquartile_mean_interval(self) -> statistics.Interval:
        """Stratified bootstrap interval of the interquartile mean."""
        return statistics.interquartile_mean_interval(self.values)

    @property
    def mean_text(self) -> str:
        """The mean with its interval, for readers."""
        return with_interval(self.mean, self.mean_interval)

    def columns(self, figures: Mapping[str, str] = FIGURES) -> dict[str, Any]:
        """Return figures as columns of a row, by the column's name; those with an interval have its ends beside them.

        Figures are those of `FIGURES`. Without a seed all but their number are None, or unbounded.
        """
        row: dict[str, Any] = {}
        for figure, name in figures.items():
            row[name] = getattr(self, figure) if self.by_seed or figure == "seeds" else None
            if figure in _WITH_INTERVAL:
                row |= getattr(self, f"{figure}_interval").columns(f"{name}_")
        return row


def paired_difference(first: SeedValues | None, second: SeedValues | None) -> SeedValues | None:
    """Return first - second of every seed that both have, None if they share no seed or one is missing.

    What only rounding left is 0: two means of the same shares, summed otherwise, are equal.
    """
    return _paired(_difference, first, second)


def _difference(first: float, second: float) -> float:
    return 0.0 if math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING) else first - second


def paired_ratio(first: SeedValues | None, second: SeedValues | None) -> SeedValues | None:
    """Return first / second of every seed that both have and where second is not 0, None if there is none."""
    divisors = second and SeedValues({seed: value for seed, value in second.by_seed.items() if value})
    return _paired(operator.truediv, first, divisors)


def _paired(
    combine: Callable[[float, float], float], first: SeedValues | None, second: SeedValues | None
) -> SeedValues | None:
    if first is None or second is None:
        return None
    shared = sorted(first.by_seed.keys() & second.by_seed.keys())
    return SeedValues({seed: combine(first.by_seed[seed], second.by_seed[seed]) for seed in shared}) if shared else None


def difference_columns(first: SeedValues, second: SeedValues) -> dict[str, Any]:
    """Return the figures of first - second, paired by seed, and for how many it is above and below 0.

    Of values that share no seed there is their number alone.
    """
    difference = paired_difference(first, second)
    if difference is None:
        return {"seeds": 0}
    above, below = (int((sign * difference.values > 0.0).sum()) for sign in (1, -1))
    return {**difference.columns(), "seeds_above": above, "seeds_below": below}


def by_seed_frame(results: Mapping[int, Rows]) -> pd.DataFrame:
    """Return the rows of every seed as one frame, `seed` in the first column."""
    return pd.DataFrame([{"seed": seed, **row} for seed, rows in results.items() for row in rows])


def seed_values(frame: pd.DataFrame, value: str, over: str = "seed") -> SeedValues:
    """Return a column of a frame by seed; rows without a value are left out."""
    known = frame[frame[value].notna()]
    return SeedValues(dict(zip(known[over].tolist(), known[value].astype(float).tolist(), strict=True)))


def summary(
    frame: pd.DataFrame, by: Sequence[str], value: str, figures: Mapping[str, str] = FIGURES, over: str = "seed"
) -> pd.DataFrame:
    """Return figures over seeds of a column, a row for each group of the columns `by`, which become the index.

    Groups stand in the order of their first rows; `figures` has the name of each figure's column. Intervals of one seed
    are unbounded.
    """
    groups = frame.groupby([*by], sort=False, dropna=False)
    return _indexed(by, {key: seed_values(group, value, over).columns(figures) for key, group in groups})


def share(frame: pd.DataFrame, by: Sequence[str], name: str) -> pd.DataFrame:
    """Count the seeds of each group for which the column `name` holds.

    Beside `seeds_<name>` stands their share in percent, `<name>_percent`, with the exact interval.
    """
    rows = {}
    for key, group in frame.groupby([*by], sort=False):
        held, seeds = int(group[name].astype(bool).sum()), len(group)
        interval = statistics.clopper_pearson_interval(held, seeds).scaled(100.0).columns(f"{name}_percent_")
        rows[key] = {f"seeds_{name}": f"{held} of {seeds}", f"{name}_percent": 100.0 * held / seeds, **interval}
    return _indexed(by, rows)


def _indexed(by: Sequence[str], rows: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(rows, names=by) if len(by) > 1 else pd.Index([key for (key,) in rows], name=by[0])
    return pd.DataFrame([*rows.values()], index=index)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain values, columns of the index first; what is missing or unbounded is None."""
    named = frame.reset_index() if frame.index.names != [None] else frame
    return [finite(row) for row in named.to_dict("records")]


#: What `figure_cells` has.
FIGURE_HEADINGS = ("median", "mean (t interval)", "interquartile mean (bootstrap)", "deviation (chi-square)")


def figure_cells(row: Mapping[str, Any], digits: int = 1) -> list[str]:
    """Return the median, and mean, interquartile mean and deviation with their intervals, as texts."""
    return [f"**{number(row['median'], digits)}**", *(interval_cell(row, name, digits) for name in _WITH_INTERVAL)]


def interval_cell(row: Mapping[str, Any], value: str, digits: int = 1) -> str:
    """Return a row's value with its interval as text; empty where the row has none."""
    if value not in row:
        return ""
    return with_interval(row[value], statistics.Interval(row[f"{value}_low"], row[f"{value}_high"]), digits)


#: More would not fit beside each other on a line of 80 characters.
_SEEDS_A_TABLE = 5


@dataclass(frozen=True)
class SeedsTable:
    """A summary over seeds, one row per setting, and the single seeds, one row per setting and seed.

    `keys` name the columns that identify a setting. A seed's row has its counts (`wins`, `episodes`, `rate`, `low`,
    `high`) or what was `found`.
    """

    title: str
    keys: tuple[str, ...]
    summary: Rows
    by_seed: Rows

    @classmethod
    def of(cls, title: str, frame: pd.DataFrame, *parts: pd.DataFrame) -> SeedsTable:
        """Put parts of the frame's summary beside each other: the settings' columns are the index of each."""
        return cls(title, tuple(parts[0].index.names), records(pd.concat(parts, axis=1)), records(frame))

    @classmethod
    def of_win_rates(cls, title: str, by: Sequence[str], results: Mapping[int, Rows]) -> SeedsTable:
        """Return the mean win rate of each setting, in percent; every seed's rows have its counts and the rate."""
        frame = by_seed_frame(results)
        percent = frame.assign(percent=100.0 * frame["rate"])
        return cls.of(title, frame, summary(percent, by, "percent", {"seeds": "seeds", "mean": "win_percent"}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in order."""
        return tuple(sorted({row["seed"] for row in self.by_seed}))

    def rows(self) -> list[dict[str, Any]]:
        """Return the summary, every seed's point in a column of its own."""
        return [
            {**row, "each_seed": "; ".join(f"{s}: {p}" for s, p in self._points(row).items())} for row in self.summary
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return both tables as plain values for JSON."""
        return {"title": self.title, "rows": self.rows(), "seeds": [dict(row) for row in self.by_seed]}

    def to_rich(self) -> list[Table]:
        """Return the summary and every seed's points for the terminal, a table for a few seeds each."""
        tables = [readable_table(f"{self.title}, {seeds_text(len(self.seeds))}", self.summary).to_rich()]
        for start in range(0, len(self.seeds), _SEEDS_A_TABLE):
            seeds = self.seeds[start : start + _SEEDS_A_TABLE]
            headings = (*self.keys, *(f"seed {seed}" for seed in seeds))
            rows = [
                [*(str(row[key]) for key in self.keys), *(self._points(row).get(seed, "") for seed in seeds)]
                for row in self.summary
            ]
            tables.append(text_table("Each seed", headings, rows))
        return tables

    def save(self, folder: Path, name: str) -> None:
        """Write `<name>.json`, `<name>.parquet` (the summary) and `<name>-seeds.parquet` into a folder.

        The JSON says beside both tables which commit, versions and machine it comes from.

        Raises:
            WriteError: if the place cannot be written.
        """
        write_results(folder, name, self.rows(), describe_origin() | self.to_dict())
        write_rows(folder / f"{name}-seeds.parquet", self.by_seed)

    def _points(self, setting: Mapping[str, Any]) -> dict[int, str]:
        rows = [row for row in self.by_seed if all(row[key] == setting[key] for key in self.keys)]
        return {row["seed"]: _point(row) for row in sorted(rows, key=lambda row: row["seed"])}


def _point(row: Mapping[str, Any]) -> str:
    if "found" in row:
        return str(row["found"])
    low, high = 100 * row["low"], 100 * row["high"]
    return f"{100 * row['rate']:.1f} % ({row['wins']}/{row['episodes']}, {low:.1f} to {high:.1f})"


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


def moving_average(values: Values, width: int) -> Values:
    """Average each point with up to `width` - 1 points before it; `values` (..., points)."""
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    ends = np.arange(1, values.shape[-1] + 1)
    begins = np.maximum(ends - width, 0)
    return np.asarray((sums[..., ends] - sums[..., begins]) / (ends - begins))
