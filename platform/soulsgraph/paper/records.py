"""What a reproduction left: win rates, curves and measures of every seed, also beside an earlier report."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from soulsgraph.evaluate import TABLE_1
from soulsgraph.files import api_call
from soulsgraph.statistics import SeedRate, SettingRates, Spread
from soulsgraph.tables import markdown_table, number, read_rows, seeds_text
from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import SoulsGraphError

Records = list[dict[str, Any]]

#: Columns of each table under `records/`.
COLUMNS = {
    "rows": (
        "preset", "seed", "part", "label", "scenario", "start", "paper_percent",
        "wins", "episodes", "mean_return", "mean_length", "mean_seconds",
    ),
    "curves": (
        "preset", "seed", "unit", "skill", "scenario", "step",
        "episode_return", "low", "high", "length", "seconds", "win_rate",
    ),
    "training": (
        "preset", "seed", "unit", "skill", "scenario", "step",
        "episode_return", "episode_length", "episode_seconds", "win_rate",
    ),
    "measures": ("preset", "seed", "name", "value", "count"),
}  # fmt: skip
#: Columns that records from before they were kept lack: nothing is shown of them then.
_LATER = ("mean_seconds", "seconds", "episode_seconds")
#: Parts of Table 1; the other settings are `extra` or `reference`.
TABLE_1_PARTS, REFERENCE = ("a", "b"), "reference"
DESCRIPTION = "reproduction.json"
#: The learner of a study that is this package's own.
OWN_LEARNER = "soulsgraph"


@dataclass(frozen=True)
class Reproduction:
    """The records of one reproduction, under the name that reports give it."""

    name: str
    description: Mapping[str, Any] = field(default_factory=dict)
    rows: Records = field(default_factory=list)
    curves: Records = field(default_factory=list)
    training: Records = field(default_factory=list)
    measures: Records = field(default_factory=list)

    @property
    def preset(self) -> str:
        """The preset of every record; empty if nothing names one."""
        return _preset(self.description, self.rows + self.curves + self.training + self.measures)

    @property
    def learner(self) -> str:
        """Who learned: this package's DQN as its preset says, or the package whose DQN it was."""
        return str(_planned(self.description, "learner") or OWN_LEARNER)

    @property
    def method(self) -> str:
        """What was trained, not to be mistaken for the paper's own figures: the first preset is called `paper` too."""
        if self.learner != OWN_LEARNER:
            return self.learner
        changed = [f"{name}={value}" for name, value in (_planned(self.description, "overrides") or {}).items()]
        return f"preset {self.preset}" + (f" with {', '.join(changed)}" if changed else "")

    @property
    def short_name(self) -> str:
        """The preset, or the learner's package; empty where options were changed or nothing names one."""
        changed = _planned(self.description, "overrides")
        return "" if changed else self.preset if self.learner == OWN_LEARNER else self.learner

    @property
    def title(self) -> str:
        """The method, and the name before it where that is another."""
        return self.method if self.name == self.short_name else f"{self.name} ({self.method})"

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds in the records; scripted references have none."""
        trained = [row for row in self.rows if row["part"] != REFERENCE]
        return tuple(sorted({int(row["seed"]) for row in trained + self.curves + self.training + self.measures}))

    @property
    def seeds_told(self) -> str:
        """How many seeds are recorded, and of how many planned ones where some are missing."""
        planned, done = _planned(self.description, "seeds"), len(self.seeds)
        missing = isinstance(planned, list) and done < len(planned)
        return f"unfinished: {done} of {seeds_text(len(planned))}" if missing else seeds_text(done)

    @cached_property
    def settings(self) -> tuple[SettingRates, ...]:
        """Every evaluated setting, in the order recorded.

        Raises:
            SoulsGraphError: if a seed is recorded twice for a setting.
        """
        groups: dict[tuple[str, ...], Records] = defaultdict(list)
        for row in self.rows:
            groups[row["label"], row["scenario"], row["start"]].append(row)
        return tuple(_setting(rows) for rows in groups.values())

    @cached_property
    def setting(self) -> Mapping[str, SettingRates]:
        """The settings of Table 1 by label."""
        return {setting.label: setting for setting in self.settings if setting.part in TABLE_1_PARTS}

    @cached_property
    def measure(self) -> Mapping[str, Spread]:
        """The measures by name, each over seeds."""
        values: dict[str, dict[int, float]] = defaultdict(dict)
        for row in self.measures:
            values[row["name"]][int(row["seed"])] = float(row["value"])
        return {name: Spread(by_seed) for name, by_seed in values.items()}


def load_reproductions(folders: Sequence[Path]) -> tuple[Reproduction, ...]:
    """Load the records of every folder, each named by its preset or learner, or by its folder where that repeats.

    Raises:
        SoulsGraphError: if a folder is given twice, or holds no records, or some that are damaged.
    """
    places = [folder.resolve() for folder in folders]
    if len(set(places)) < len(places):
        raise SoulsGraphError(
            f"report: expected each folder once, found {', '.join(map(str, folders))}; leave one out."
        )
    loaded = [_load(folder) for folder in folders]
    common = Counter(item.short_name for item in loaded)
    names = [
        item.short_name if item.short_name and common[item.short_name] == 1 else folder.resolve().name
        for item, folder in zip(loaded, folders, strict=True)
    ]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    names = [
        f"{folder.resolve().parent.name}/{name}" if name in repeated else name
        for name, folder in zip(names, folders, strict=True)
    ]
    return tuple(
        Reproduction(name, item.description, item.rows, item.curves, item.training, item.measures)
        for name, item in zip(names, loaded, strict=True)
    )


def _load(folder: Path) -> Reproduction:
    records = {name: _read(folder / "records" / f"{name}.parquet", columns) for name, columns in COLUMNS.items()}
    if not any(records.values()):
        found = "no records in it" if folder.exists() else "no such folder"
        raise SoulsGraphError(f"{folder}: expected the folder of a reproduction, found {found}; {_remedy(folder)}.")
    file = folder / DESCRIPTION
    return Reproduction("", _described(file) if file.exists() else {}, **records)


def _described(file: Path) -> Mapping[str, Any]:
    """Read a description and check what a report computes with; older ones hold less."""
    where, table = Where(file, remedy="restore the file from a copy"), Mapping[str, Any]
    description: Mapping[str, Any] = read_value(table, read_file(where), where)
    plan = read_value(table, description.get("plan", {}), where.at("plan"))
    read_value(table, plan.get("overrides", {}), where.at("plan").at("overrides"))
    read_value(list[table], description.get("sessions", []), where.at("sessions"))  # type: ignore[valid-type]
    return description


def _read(path: Path, columns: Sequence[str]) -> Records:
    if not path.exists():
        return []
    remedy = _remedy(path.parents[1])
    rows = read_rows(path, remedy)
    later = dict.fromkeys(name for name in _LATER if name in columns)
    rows = [later | row for row in rows]
    missing = [name for name in columns if rows and name not in rows[0]]
    if missing:
        raise SoulsGraphError(
            f"{path}: expected columns {', '.join(columns)}; found no {', '.join(missing)}; {remedy}."
        )
    for row in rows:
        if not _holds(row):
            raise SoulsGraphError(
                f"{path}: expected a seed, and wins of one or more episodes or a value, found {row!r:.200}; {remedy}."
            )
    return rows


def _remedy(folder: Path) -> str:
    """Return the remedy for missing or damaged records, which are made from what is under `seeds/`."""
    if (folder / DESCRIPTION).exists():
        return f"write them again with: {api_call('do_units', folder=folder)}"
    if folder.exists():
        return "name the folder of a reproduction"
    return f"write one with: {api_call('ReproductionFolder.create', path=folder)}"


def _holds(row: Mapping[str, Any]) -> bool:
    """Return whether a record's numbers are valid for statistics."""
    wins, episodes = row.get("wins", 0), row.get("episodes", 1)
    whole = all(type(number) is int for number in (row["seed"], wins, episodes))
    numbers = (row.get("value", 0.0), row.get("step", 0))
    return whole and 0 <= wins <= episodes and episodes > 0 and all(isinstance(n, int | float) for n in numbers)


def _preset(description: Mapping[str, Any], records: Records) -> str:
    return str(_planned(description, "preset") or next((row["preset"] for row in records), ""))


def _planned(description: Mapping[str, Any], name: str) -> Any:
    plan = description.get("plan")
    return plan.get(name) if isinstance(plan, dict) else None


def _setting(rows: Records) -> SettingRates:
    first = rows[0]
    seeds = tuple(
        SeedRate(int(row["seed"]), int(row["wins"]), int(row["episodes"]))
        for row in sorted(rows, key=lambda row: int(row["seed"]))
    )
    if len({rate.seed for rate in seeds}) < len(seeds):
        found = ", ".join(str(rate.seed) for rate in seeds)
        raise SoulsGraphError(
            f"setting {first['label']!r}: expected each seed once, found {found}; write the records again with "
            "`ReproductionFolder.open`."
        )
    percent = first["paper_percent"]
    paper = None if percent is None or math.isnan(percent) else float(percent)
    return SettingRates(first["label"], first["part"], first["scenario"], first["start"], paper, seeds)


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
    return float(scipy.stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)
