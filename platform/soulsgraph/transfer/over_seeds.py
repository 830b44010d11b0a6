"""Several runs, one per training seed: each evaluated alone, compared within its seed, episodes never pooled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from soulsgraph.files import write_json
from soulsgraph.intervals import Interval
from soulsgraph.reports.parquet import write_rows
from soulsgraph.reports.readable import readable_table
from soulsgraph.reports.seed_statistics import Spread
from soulsgraph.reports.tables import seeds_text
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.report import text_table
from soulsgraph_envs.errors import SoulsGraphError

Records = Sequence[Mapping[str, Any]]

_EACH = "each_seed"


def open_seeds(folders: Sequence[Path]) -> dict[int, RunFolder]:
    """Open runs that differ in nothing but their seed, by seed in the order given.

    Raises:
        SoulsGraphError: if none is given, one is no run, two have the same seed, or their plans differ otherwise.
    """
    if not folders:
        raise SoulsGraphError("RUN: expected one or more run folders, found none; name one.")
    runs: dict[int, RunFolder] = {}
    for folder in folders:
        run = RunFolder.open(folder)
        first = next(iter(runs.values()), run)
        if run.plan.seed in runs:
            raise SoulsGraphError(
                f"{folder}: expected a run of another seed than {runs[run.plan.seed].path}, found seed "
                f"{run.plan.seed} again; name each seed once."
            )
        if replace(run.plan, seed=first.plan.seed) != first.plan:
            raise SoulsGraphError(
                f"{folder}: expected the plan of {first.path} but for its seed, found another; "
                "compare runs of one plan, others by a call of their own."
            )
        runs[run.plan.seed] = run
    return runs


@dataclass(frozen=True)
class SeedsTable:
    """A summary over seeds, one row per setting, and the single seeds, one row per setting and seed.

    `keys` name the columns that identify a setting. A seed's row has its counts (`wins`, `episodes`, `rate`, `low`,
    `high`) or what was `found`.
    """

    title: str
    keys: tuple[str, ...]
    summary: Records
    by_seed: Records

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in order."""
        return tuple(sorted({row["seed"] for row in self.by_seed}))

    def rows(self) -> list[dict[str, Any]]:
        """Return the summary, every seed's point in a column of its own."""
        return [{**row, _EACH: "; ".join(f"{s}: {p}" for s, p in self._points(row).items())} for row in self.summary]

    def to_dict(self) -> dict[str, Any]:
        """Return both tables as plain values for JSON."""
        return {"title": self.title, "rows": self.rows(), "seeds": [dict(row) for row in self.by_seed]}

    def to_rich(self) -> tuple[Table, Table]:
        """Return the summary and every seed's points for the terminal."""
        summary = readable_table(self.summary)
        title = f"{self.title}, {seeds_text(len(self.seeds))}"
        if summary.common:
            title = f"{title}\n{summary.common_line}"
        headings = (*self.keys, *(f"seed {seed}" for seed in self.seeds))
        cells = [
            [*(str(row[key]) for key in self.keys), *(self._points(row).get(seed, "") for seed in self.seeds)]
            for row in self.summary
        ]
        return text_table(title, summary.headings, summary.cells), text_table("Each seed", headings, cells)

    def save(self, folder: Path, name: str) -> None:
        """Write `<name>.json`, `<name>.parquet` (the summary) and `<name>-seeds.parquet` into a folder.

        Raises:
            WriteError: if the place cannot be written.
        """
        write_rows(folder / f"{name}.parquet", self.rows())
        write_rows(folder / f"{name}-seeds.parquet", self.by_seed)
        write_json(folder / f"{name}.json", self.to_dict())

    def _points(self, setting: Mapping[str, Any]) -> dict[int, str]:
        rows = [row for row in self.by_seed if all(row[key] == setting[key] for key in self.keys)]
        return {row["seed"]: _point(row) for row in sorted(rows, key=lambda row: row["seed"])}


def _point(row: Mapping[str, Any]) -> str:
    if "found" in row:
        return str(row["found"])
    low, high = 100 * row["low"], 100 * row["high"]
    return f"{100 * row['rate']:.1f} % ({row['wins']}/{row['episodes']}, {low:.1f} to {high:.1f})"


def spread_fields(name: str, spread: Spread | None) -> dict[str, float | None]:
    """Return a mean over seeds and the ends of its t interval as columns; None where there is none."""
    if spread is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: spread.mean, **interval_fields(name, spread.mean_interval)}


def interval_fields(name: str, interval: Interval) -> dict[str, float | None]:
    """Return the ends of an interval as columns; None where it is unbounded, as that of one seed is."""
    bounded = all(map(math.isfinite, interval))
    return {f"{name}_low": interval.low if bounded else None, f"{name}_high": interval.high if bounded else None}
