"""What a reproduction left: win rates, curves and measures of every seed, also beside an earlier report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy
from rich.table import Table

from soulsgraph.evaluate import TABLE_1
from soulsgraph.files import api_call
from soulsgraph.plan import RENAMED_PRESETS
from soulsgraph.statistics import Interval, SettingRates, Spread, WinCount, paired_difference
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
    def plan(self) -> Mapping[str, Any]:
        """What was planned; empty where nothing describes it."""
        plan: Mapping[str, Any] = self.description.get("plan", {})
        return plan

    @property
    def preset(self) -> str:
        """The preset of every record; empty if nothing names one."""
        records = chain(self.rows, self.curves, self.training, self.measures)
        return str(self.plan.get("preset") or next((row["preset"] for row in records), ""))

    @property
    def learner(self) -> str:
        """Who learned: this package's DQN as its preset says, or the package whose DQN it was."""
        return str(self.plan.get("learner") or OWN_LEARNER)

    @property
    def method(self) -> str:
        """What was trained, not to be mistaken for the paper's own figures: the first preset is called `paper` too."""
        if self.learner != OWN_LEARNER:
            return self.learner
        changed = ", ".join(f"{name}={value}" for name, value in self.plan.get("overrides", {}).items())
        return f"preset {self.preset}" + (f" with {changed}" if changed else "")

    @property
    def short_name(self) -> str:
        """The preset, or the learner's package; empty where options were changed or nothing names one."""
        own = self.preset if self.learner == OWN_LEARNER else self.learner
        return "" if self.plan.get("overrides") else own

    @property
    def title(self) -> str:
        """The method, and the name before it where that is another."""
        return self.method if self.name == self.short_name else f"{self.name} ({self.method})"

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds in the records; scripted references have none."""
        trained = (row for row in self.rows if row["part"] != REFERENCE)
        return tuple(sorted({row["seed"] for row in chain(trained, self.curves, self.training, self.measures)}))

    @property
    def seeds_told(self) -> str:
        """How many seeds are recorded, and of how many planned ones where some are missing."""
        planned, done = self.plan.get("seeds"), len(self.seeds)
        if isinstance(planned, list) and done < len(planned):
            return f"unfinished: {done} of {seeds_text(len(planned))}"
        return seeds_text(done)

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
        """The settings of Table 1 by label, in its order."""
        found = {setting.label: setting for setting in self.settings if setting.part in TABLE_1_PARTS}
        return {row.label: found[row.label] for row in TABLE_1 if row.label in found}

    @cached_property
    def measure(self) -> Mapping[str, Spread]:
        """The measures by name, each over seeds."""
        values: dict[str, dict[int, float]] = defaultdict(dict)
        for row in self.measures:
            values[row["name"]][row["seed"]] = float(row["value"])
        return {name: Spread(by_seed) for name, by_seed in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return every seed's wins as plain values, rates as ratios; the rows of Table 1 come first, in its order."""
        order = {row.label: place for place, row in enumerate(TABLE_1)}
        rows = [
            {
                "part": setting.part,
                "setting": setting.label,
                "scenario": setting.scenario,
                "start": setting.start,
                "paper_percent": setting.paper_percent,
                "seeds": {str(seed): asdict(count) for seed, count in setting.seeds.items()},
                "median_rate": median(count.wins / count.episodes for count in setting.seeds.values()),
            }
            for setting in sorted(self.settings, key=lambda item: (item.part, order.get(item.label, len(order))))
        ]
        return {"name": self.name, "preset": self.preset, "rows": rows}

    def to_rich(self) -> Table:
        """Return every seed's wins as a table for the terminal."""
        table = Table(title=f"Win rates, {self.title}")
        for heading in ("setting", "paper", "median", "each seed in %", "wins"):
            table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
        for row in self.to_dict()["rows"]:
            table.add_row(*_cells(row))
        return table


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    papers = "" if row["paper_percent"] is None else f"{row['paper_percent']:g} %"
    seeds = row["seeds"].values()
    rates = " ".join(f"{100 * seed['wins'] / seed['episodes']:.1f}" for seed in seeds)
    wins = " ".join(str(seed["wins"]) for seed in seeds)
    episodes = "/".join(map(str, sorted({seed["episodes"] for seed in seeds})))
    fight = f" ({row['scenario']}, {row['start']})" if row["part"] == REFERENCE else ""
    return row["setting"] + fight, papers, f"{100 * row['median_rate']:.1f} %", rates, f"{wins} of {episodes}"


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
    names = [item.short_name for item in loaded]
    names = [name if name and names.count(name) == 1 else place.name for name, place in zip(names, places, strict=True)]
    names = [
        f"{place.parent.name}/{name}" if names.count(name) > 1 else name
        for name, place in zip(names, places, strict=True)
    ]
    return tuple(replace(item, name=name) for item, name in zip(loaded, names, strict=True))


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
    return _renamed(description)


def _renamed(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a description with the present name of its preset."""
    plan = description.get("plan", {})
    if description.get("version") == 1 and plan.get("preset") in RENAMED_PRESETS:
        return {**description, "plan": {**plan, "preset": RENAMED_PRESETS[plan["preset"]]}}
    return description


def _read(path: Path, columns: Sequence[str]) -> Records:
    if not path.exists():
        return []
    remedy = _remedy(path.parents[1])
    later = dict.fromkeys(name for name in _LATER if name in columns)
    rows = [later | row for row in read_rows(path, remedy)]
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


def _setting(rows: Records) -> SettingRates:
    first, rows = rows[0], sorted(rows, key=lambda row: int(row["seed"]))
    seeds = {row["seed"]: WinCount(row["wins"], row["episodes"]) for row in rows}
    if len(seeds) < len(rows):
        found = ", ".join(str(row["seed"]) for row in rows)
        raise SoulsGraphError(
            f"setting {first['label']!r}: expected each seed once, found {found}; write the records again with "
            "`ReproductionFolder.open`."
        )
    percent = first.get("paper_percent")
    paper = None if percent is None or math.isnan(percent) else float(percent)
    return SettingRates(first["label"], first["part"], first["scenario"], first["start"], paper, seeds)


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
    """Read the win rates of every seed from the folder of a report, by the reproductions' present names.

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
    found = {
        name: [row for row in rows if row["reproduction"] == name] for name in {row["reproduction"] for row in rows}
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
    return {name: _renamed(one)["plan"]["preset"] for name, one in described.items() if name in RENAMED_PRESETS}


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
