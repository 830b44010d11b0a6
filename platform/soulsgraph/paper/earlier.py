"""A reproduction's win rates beside those that earlier reports hold of other seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from soulsgraph.paper.records import REFERENCE, Records, Reproduction, in_present_names
from soulsgraph.plan import RENAMED_PRESETS
from soulsgraph.statistics import Interval, Spread, paired_difference
from soulsgraph.tables import markdown_table, number, read_rows
from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import SoulsGraphError

#: Rows whose adjusted p value lies below this differ between the two groups of seeds.
SIGNIFICANCE = 0.05

_NEEDED = ("reproduction", "label", "part", "scenario", "start", "seed", "wins", "episodes")


def load_earlier(reports: Sequence[Path]) -> Mapping[str, Reproduction]:
    """Read the win rates of every seed from the folders of earlier reports, by the reproductions' names.

    Seeds of one name are pooled, whichever report they are from.

    Raises:
        SoulsGraphError: if a folder holds no table of seeds, or a damaged one, or two hold the same seed.
    """
    rows: dict[str, Records] = {}
    for report in reports:
        for name, own in _earlier_rows(report).items():
            known = {(row["label"], row["seed"]) for row in rows.get(name, [])}
            if shared := sorted({row["seed"] for row in own if (row["label"], row["seed"]) in known}):
                found = ", ".join(map(str, shared))
                raise SoulsGraphError(f"{report}: {name}: expected seeds of its own, found {found} in another report.")
            rows[name] = [*rows.get(name, []), *own]
    return {name: Reproduction(name, rows=own) for name, own in rows.items()}


def _earlier_rows(report: Path) -> dict[str, Records]:
    """Read the win rates of every training seed from the folder of a report, by the reproductions' present names.

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
    # Scripted references have no training seed.
    trained = [row for row in rows if row["part"] != REFERENCE]
    found = {
        name: [row for row in trained if row["reproduction"] == name] for name in {row["reproduction"] for row in rows}
    }
    present = _present_names(report)
    return {present.get(name, name): own for name, own in found.items()}


def _present_names(report: Path) -> dict[str, str]:
    """Return today's names of the presets in a report from before they were renamed."""
    file = report / "report.json"
    if not file.exists():
        return {}
    where = Where(file, remedy="name the folder that holds an earlier report.md")
    described = read_value(Mapping[str, Any], read_file(where), where).get("reproductions", {})
    return {name: in_present_names(one)["plan"]["preset"] for name, one in described.items() if name in RENAMED_PRESETS}


def agreement_rows(reproductions: Sequence[Reproduction], earlier: Mapping[str, Reproduction]) -> Records:
    """Return each row of Table 1 on these seeds and on the earlier ones, and whether they differ.

    Two-sided Mann-Whitney tests over seeds, which share no value but ties; Holm's adjustment within a reproduction.

    Raises:
        SoulsGraphError: if a seed is in both.
    """
    rows: Records = []
    for item in (item for item in reproductions if item.name in earlier):
        before = earlier[item.name].setting
        compared = [
            _compare(item.name, label, setting.spread, before[label].spread)
            for label, setting in item.setting.items()
            if label in before
        ]
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
    headings = ("row", "preset", "these seeds", "earlier seeds", "difference", "adjusted p", "the two groups")
    cells = [
        (
            row["label"],
            row["reproduction"],
            f"**{number(row['median'])}** {_range(row, '')}",
            f"{number(row['earlier_median'])} {_range(row, 'earlier_')}",
            f"{row['difference']:+.1f} ({row['difference_low']:+.1f} to {row['difference_high']:+.1f})",
            number(row["adjusted_p"], 3),
            "agree" if row["agree"] else "**differ**",
        )
        for row in rows
    ]
    note = (
        "Win rates in %: median (lowest to highest seed), number of seeds; the groups share no seed. The difference is "
        "that of the means in points, with Welch's t interval. Two-sided "
        f"Mann-Whitney tests, Holm's adjustment over the rows of a preset, {SIGNIFICANCE:g} as the limit."
    )
    return f"## Beside earlier seeds\n\n{note}\n\n{markdown_table(headings, cells)}" if rows else ""


def _compare(name: str, label: str, these: Spread, earlier: Spread) -> dict[str, Any]:
    if shared := paired_difference(these, earlier):
        found = ", ".join(map(str, shared.by_seed))
        raise SoulsGraphError(f"{name}: expected seeds that the earlier report lacks, found {found} in both.")
    # Nothing to rank where every seed has the same rate.
    alike = np.unique([*these.values, *earlier.values]).size == 1
    tested = None if alike else scipy.stats.mannwhitneyu(these.values, earlier.values, alternative="two-sided")
    p = float(tested.pvalue) if tested else 1.0
    difference = _difference(these, earlier).columns("difference_")
    mean = {"difference": these.mean - earlier.mean, **difference}
    return {"reproduction": name, "label": label, **_group("", these), **_group("earlier_", earlier), **mean, "p": p}


def _difference(these: Spread, earlier: Spread) -> Interval:
    """Return Welch's t interval (1947) of the difference of the means; unbounded where a group has a single seed."""
    if min(these.values.size, earlier.values.size) < 2:
        return Interval(-math.inf, math.inf)
    if these.deviation == earlier.deviation == 0.0:
        return Interval(these.mean - earlier.mean, these.mean - earlier.mean)
    low, high = scipy.stats.ttest_ind(these.values, earlier.values, equal_var=False).confidence_interval(0.95)
    return Interval(float(low), float(high))


def _group(prefix: str, spread: Spread) -> dict[str, Any]:
    low, high = float(spread.values.min()), float(spread.values.max())
    counted = {f"{prefix}seeds": len(spread.by_seed), f"{prefix}median": spread.median}
    return counted | Interval(low, high).columns(prefix)


def _range(row: Mapping[str, Any], prefix: str) -> str:
    low, high = (number(row[f"{prefix}{name}"]) for name in ("low", "high"))
    return f"({low} to {high}), {row[f'{prefix}seeds']}"
