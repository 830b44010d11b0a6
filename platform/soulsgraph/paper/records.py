"""What a reproduction left: win rates, curves and measures of every seed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from soulsgraph.paper.study import COLUMNS, DESCRIPTION, REFERENCE, TABLE_1_PARTS, Records
from soulsgraph.results.seeds import SeedValues
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import read_rows, seeds_text
from soulsgraph.results.terminal import TextTable
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.plan import RENAMED_PRESETS
from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import Remedy, SoulsGraphError

#: Columns that records from before they were kept lack: nothing is shown of them then.
_LATER = ("mean_seconds", "seconds", "episode_seconds")
#: The learner of a study that is this package's own.
OWN_LEARNER = "soulsgraph"


@dataclass(frozen=True)
class SettingRates:
    """One row of a table of win rates: a setting, played by the agent of every seed."""

    label: str
    part: str
    scenario: str
    start: str
    #: What the paper reports for the setting, None for a setting that it lacks.
    paper_percent: float | None
    seeds: Mapping[int, WinRate]

    @cached_property
    def spread(self) -> SeedValues:
        """The win rates in percent over seeds."""
        return SeedValues({seed: count.percent for seed, count in self.seeds.items()})


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
    def measure(self) -> Mapping[str, SeedValues]:
        """The measures by name, each over seeds."""
        values: dict[str, dict[int, float]] = defaultdict(dict)
        for row in self.measures:
            values[row["name"]][row["seed"]] = float(row["value"])
        return {name: SeedValues(by_seed) for name, by_seed in values.items()}

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
                "seeds": {
                    str(seed): {"wins": count.wins, "episodes": count.episodes} for seed, count in setting.seeds.items()
                },
                "median_rate": median(count.wins / count.episodes for count in setting.seeds.values()),
            }
            for setting in sorted(self.settings, key=lambda item: (item.part, order.get(item.label, len(order))))
        ]
        return {"name": self.name, "preset": self.preset, "rows": rows}

    def to_rich(self) -> Table:
        """Return every seed's wins as a table for the terminal."""
        table = TextTable(title=f"Win rates, {self.title}")
        for heading in ("setting", "paper", "median", "each seed in %", "wins"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
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
        raise SoulsGraphError(f"{folder}: expected the folder of a reproduction, found {found}", _remedy(folder))
    file = folder / DESCRIPTION
    return Reproduction("", _described(file) if file.exists() else {}, **records)


def _described(file: Path) -> Mapping[str, Any]:
    """Read a description and check what a report computes with; older ones hold less."""
    where, table = Where(file, remedy="restore the file from a copy"), Mapping[str, Any]
    description: Mapping[str, Any] = read_value(table, read_file(where), where)
    plan = read_value(table, description.get("plan", {}), where.at("plan"))
    read_value(table, plan.get("overrides", {}), where.at("plan").at("overrides"))
    read_value(list[table], description.get("sessions", []), where.at("sessions"))  # type: ignore[valid-type]
    return in_present_names(description)


def in_present_names(description: Mapping[str, Any]) -> Mapping[str, Any]:
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
        raise SoulsGraphError(f"{path}: expected columns {', '.join(columns)}; found no {', '.join(missing)}", remedy)
    for row in rows:
        if not _holds(row):
            raise SoulsGraphError(
                f"{path}: expected a seed, and wins of one or more episodes or a value, found {row!r:.200}", remedy
            )
    return rows


def _remedy(folder: Path) -> str:
    """Return the remedy for missing or damaged records, which are made from what is under `seeds/`."""
    if (folder / DESCRIPTION).exists():
        return Remedy("write them again with: ", "do_units", folder=folder)
    if folder.exists():
        return "name the folder of a reproduction"
    return Remedy("write one with: ", "ReproductionFolder.create", path=folder)


def _holds(row: Mapping[str, Any]) -> bool:
    """Return whether a record's numbers are valid for statistics."""
    wins, episodes = row.get("wins", 0), row.get("episodes", 1)
    whole = all(type(number) is int for number in (row["seed"], wins, episodes))
    numbers = (row.get("value", 0.0), row.get("step", 0))
    return whole and 0 <= wins <= episodes and episodes > 0 and all(isinstance(n, int | float) for n in numbers)


def _setting(rows: Records) -> SettingRates:
    first, rows = rows[0], sorted(rows, key=lambda row: int(row["seed"]))
    seeds = {row["seed"]: WinRate(row["wins"], row["episodes"]) for row in rows}
    if len(seeds) < len(rows):
        found = ", ".join(str(row["seed"]) for row in rows)
        raise SoulsGraphError(
            f"setting {first['label']!r}: expected each seed once, found {found}; write the records again with "
            "`ReproductionFolder.open`."
        )
    percent = first.get("paper_percent")
    paper = None if percent is None or math.isnan(percent) else float(percent)
    return SettingRates(first["label"], first["part"], first["scenario"], first["start"], paper, seeds)
