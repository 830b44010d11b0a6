"""The learning curves of a unit's stages, read from the results of its run into the columns of the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from soulsgraph.plan import Stage
from soulsgraph.reports.parquet import read_rows
from soulsgraph.reproduction.protocol import Unit
from soulsgraph.run_folder import RunFolder

#: Points that are kept of each stage's training; the paper preset alone records tens of thousands.
BINS = 200

Rows = list[dict[str, Any]]


def curve_rows(run: RunFolder, unit: Unit, stages: Sequence[Stage]) -> Rows:
    """Return the greedy checkpoints of every stage (Figures 2 and 3)."""
    return [
        place
        | {name: row[name] for name in ("step", "low", "high", "length", "seconds", "win_rate")}
        | {"episode_return": row["return"]}
        for place, rows in _stages(run, unit, stages, "curves")
        for row in sorted(rows, key=lambda row: int(row["step"]))
    ]


def training_rows(run: RunFolder, unit: Unit, stages: Sequence[Stage]) -> Rows:
    """Return the episodes that ended while training, as means over parts of each stage's budget (Figures 5 and 6)."""
    return [
        place | part
        for (place, rows), stage in zip(_stages(run, unit, stages, "training"), stages, strict=True)
        for part in _binned([row for row in rows if row["episodes"]], stage.budget)
    ]


def _stages(run: RunFolder, unit: Unit, stages: Sequence[Stage], table: str) -> list[tuple[dict[str, Any], Rows]]:
    path = run.results(table)
    told = read_rows(path) if path.exists() else []
    return [
        (
            {"seed": unit.seed, "unit": unit.part, "skill": stage.skill, "scenario": stage.scenario},
            [row for row in told if row["stage"] == stage.name],
        )
        for stage in stages
    ]


def _binned(rows: Rows, budget: int) -> Rows:
    width = max(budget / BINS, 1.0)
    bins = np.array([int((row["step"] - 1) / width) for row in rows], np.int64)
    columns = {
        "episode_return": "return",
        "episode_length": "length",
        "episode_seconds": "seconds",
        "win_rate": "win_rate",
    }
    parts = []
    for index in np.unique(bins):
        within = [row for row, one in zip(rows, bins, strict=True) if one == index]
        weights = [row["episodes"] for row in within]
        means = {name: float(np.average([row[of] for row in within], weights=weights)) for name, of in columns.items()}
        parts.append({"step": max(int(row["step"]) for row in within), **means})
    return parts
