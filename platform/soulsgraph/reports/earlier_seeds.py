"""A reproduction beside an earlier report on other seeds: do the two groups of seeds agree?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu

from soulsgraph.reports.parquet import read_rows
from soulsgraph.reports.reproduction_records import Records, Reproduction
from soulsgraph.reports.tables import markdown_table, number
from soulsgraph.table_1 import TABLE_1
from soulsgraph_envs.errors import SoulsGraphError

#: Rows whose adjusted p value lies below this differ between the two groups of seeds.
SIGNIFICANCE = 0.05

#: Win rates in percent by seed, of each reproduction's rows of Table 1.
EarlierRates = Mapping[tuple[str, str], Mapping[int, float]]

_NEEDED = ("reproduction", "label", "part", "seed", "percent")


def load_earlier(report: Path) -> EarlierRates:
    """Read the win rates of every seed from the folder of an earlier report.

    Raises:
        SoulsGraphError: if the folder holds no table of seeds, or a damaged one.
    """
    path = report / "tables" / "seeds.parquet"
    rows = read_rows(path)
    missing = [name for name in _NEEDED if not rows or name not in rows[0]]
    if missing:
        raise SoulsGraphError(
            f"{path}: expected the seeds of a report, found no column {missing[0]}; "
            "name the folder that holds an earlier report.md."
        )
    rates: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["part"] in ("a", "b"):
            rates[row["reproduction"], row["label"]][int(row["seed"])] = float(row["percent"])
    return rates


def agreement_rows(reproductions: Sequence[Reproduction], earlier: EarlierRates) -> Records:
    """Return each row of Table 1 on these seeds and on the earlier ones, and whether they differ.

    Two-sided Mann-Whitney tests over seeds, which share no value but ties; Holm's adjustment within a reproduction.

    Raises:
        SoulsGraphError: if a seed is in both.
    """
    rows: Records = []
    for item in reproductions:
        pairs = {
            row.label: (item.setting[row.label].spread.by_seed, earlier[item.name, row.label])
            for row in TABLE_1
            if row.label in item.setting and (item.name, row.label) in earlier
        }
        compared = [_compare(item.name, label, *pair) for label, pair in pairs.items()]
        adjusted = holm([row["p"] for row in compared])
        rows += [
            {**row, "adjusted_p": p, "agree": p >= SIGNIFICANCE} for row, p in zip(compared, adjusted, strict=True)
        ]
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's step-down rule (Holm 1979)."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(count)
    stepped = np.asarray(p_values, np.float64)[order] * (count - np.arange(count))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(p) for p in adjusted]


def agreement_section(rows: Records) -> str:
    """Return the comparison as Markdown; empty without a row."""
    if not rows:
        return ""
    headings = ("row", "preset", "these seeds", "earlier seeds", "adjusted p", "the two groups")
    cells = [
        (
            row["label"],
            row["reproduction"],
            f"**{number(row['median'])}** ({number(row['low'])} to {number(row['high'])}), {row['seeds']}",
            f"{number(row['earlier_median'])} ({number(row['earlier_low'])} to {number(row['earlier_high'])}), "
            f"{row['earlier_seeds']}",
            number(row["adjusted_p"], 3),
            "agree" if row["agree"] else "**differ**",
        )
        for row in rows
    ]
    note = (
        "Win rates in %: median (lowest to highest seed), number of seeds; the groups share no seed. Two-sided "
        f"Mann-Whitney tests, Holm's adjustment over the rows of a preset, {SIGNIFICANCE:g} as the limit."
    )
    return "\n\n".join(["## Beside earlier seeds", note, markdown_table(headings, cells)])


def _compare(name: str, label: str, these: Mapping[int, float], earlier: Mapping[int, float]) -> dict[str, Any]:
    shared = sorted(these.keys() & earlier.keys())
    if shared:
        found = ", ".join(map(str, shared))
        raise SoulsGraphError(f"{name}: expected seeds that the earlier report lacks, found {found} in both.")
    now, before = (np.array([*rates.values()]) for rates in (these, earlier))
    groups = {**_spread("", now), **_spread("earlier_", before)}
    return {"reproduction": name, "label": label, **groups, "p": _p_value(now, before)}


def _spread(prefix: str, values: npt.NDArray[np.float64]) -> dict[str, Any]:
    figures = {"seeds": len(values), "median": float(np.median(values)), "low": values.min(), "high": values.max()}
    return {f"{prefix}{name}": value if name == "seeds" else float(value) for name, value in figures.items()}


def _p_value(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Return the two-sided p value; 1 where every seed of both groups has the same rate."""
    if np.unique(np.concatenate([first, second])).size == 1:
        return 1.0
    return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)
