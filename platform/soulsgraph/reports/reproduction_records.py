"""What a reproduction left: its description, and the win rates, curves and measures of every seed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from soulsgraph.files import read_json
from soulsgraph.reports.parquet import read_rows
from soulsgraph.reports.seed_statistics import SeedRate, SettingRates, Spread
from soulsgraph_envs.errors import SoulsGraphError

Records = list[dict[str, Any]]

#: Columns of each table under `records/`.
COLUMNS = {
    "rows": (
        "preset", "seed", "part", "label", "scenario", "start", "paper_percent",
        "wins", "episodes", "mean_return", "mean_length",
    ),
    "curves": (
        "preset", "seed", "unit", "skill", "scenario", "step", "episode_return", "low", "high", "length", "win_rate",
    ),
    "training": (
        "preset", "seed", "unit", "skill", "scenario", "step", "episode_return", "episode_length", "win_rate",
    ),
    "measures": ("preset", "seed", "name", "value", "count"),
}  # fmt: skip
#: Parts of Table 1; the other settings are `extra` or `reference`.
TABLE_1_PARTS, REFERENCE = ("a", "b"), "reference"
DESCRIPTION = "reproduction.json"
_REMEDY = "write it with: soulsgraph reproduce --out"


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
    def title(self) -> str:
        """The name as readers can tell it from the paper's own figures: the first preset is called `paper` too."""
        return f"preset {self.name}" if self.name == self.preset else f"{self.name} (preset {self.preset})"

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds that anything is known of; scripted references are trained on none."""
        trained = [row for row in self.rows if row["part"] != REFERENCE]
        return tuple(sorted({int(row["seed"]) for row in trained + self.curves + self.training + self.measures}))

    @cached_property
    def settings(self) -> tuple[SettingRates, ...]:
        """Every judged setting, in the order recorded.

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
    """Load the records of every folder, each named by its preset, or by its folder where presets repeat.

    Raises:
        SoulsGraphError: if a folder holds no records, or some that are damaged.
    """
    loaded = [_load(folder) for folder in folders]
    presets = Counter(item.preset for item in loaded)
    names = [
        item.preset if item.preset and presets[item.preset] == 1 else folder.resolve().name
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
        found = "no records in it" if folder.is_dir() else "no such folder"
        raise SoulsGraphError(f"{folder}: expected the folder of a reproduction, found {found}; {_REMEDY} {folder}.")
    file = folder / DESCRIPTION
    description = read_json(file, "restore the file from a copy") if file.exists() else {}
    if not isinstance(description, dict):
        raise SoulsGraphError(f"{file}: expected an object, found {description!r:.40}; restore the file from a copy.")
    return Reproduction("", description, **records)


def _read(path: Path, columns: Sequence[str]) -> Records:
    if not path.exists():
        return []
    rows = read_rows(path)
    missing = [name for name in columns if rows and name not in rows[0]]
    if missing:
        raise SoulsGraphError(
            f"{path}: expected columns {', '.join(columns)}; found no {', '.join(missing)}; {_REMEDY}."
        )
    return rows


def _preset(description: Mapping[str, Any], records: Records) -> str:
    plan = description.get("plan")
    planned = plan.get("preset") if isinstance(plan, dict) else None
    return str(planned or next((row["preset"] for row in records), ""))


def _setting(rows: Records) -> SettingRates:
    first = rows[0]
    seeds = tuple(
        SeedRate(int(row["seed"]), int(row["wins"]), int(row["episodes"]))
        for row in sorted(rows, key=lambda row: int(row["seed"]))
    )
    if len({rate.seed for rate in seeds}) < len(seeds):
        found = ", ".join(str(rate.seed) for rate in seeds)
        raise SoulsGraphError(f"setting {first['label']!r}: expected each seed once, found {found}; record it anew.")
    percent = first["paper_percent"]
    paper = None if percent is None or math.isnan(percent) else float(percent)
    return SettingRates(first["label"], first["part"], first["scenario"], first["start"], paper, seeds)
