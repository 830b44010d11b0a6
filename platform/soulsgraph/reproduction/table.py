"""The table of a reproduction in the terminal: every setting with each seed's win rate beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from soulsgraph.reports.reproduction_records import Reproduction, load_reproductions
from soulsgraph.reports.seed_statistics import SettingRates
from soulsgraph.table_1 import TABLE_1

_HEADINGS = ("setting", "paper", "median", "each seed in %", "wins")


@dataclass(frozen=True)
class SeedTable:
    """The settings of one reproduction."""

    reproduction: Reproduction

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values, rates as ratios."""
        rows = [
            {
                "part": setting.part,
                "setting": setting.label,
                "scenario": setting.scenario,
                "start": setting.start,
                "paper_percent": setting.paper_percent,
                "seeds": {str(rate.seed): {"wins": rate.wins, "episodes": rate.episodes} for rate in setting.seeds},
                "median_rate": median(rate.wins / rate.episodes for rate in setting.seeds),
            }
            for setting in sorted(self.reproduction.settings, key=_place)
        ]
        return {"name": self.reproduction.name, "preset": self.reproduction.preset, "rows": rows}

    def to_rich(self) -> Table:
        """Return the table for the terminal."""
        table = Table(title=f"Win rates, {self.reproduction.title}")
        for heading in _HEADINGS:
            table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
        for row in self.to_dict()["rows"]:
            table.add_row(*_cells(row))
        return table


def seed_tables(folders: Sequence[Path]) -> list[SeedTable]:
    """Return the table of every folder's records.

    Raises:
        SoulsGraphError: if a folder holds no records, or some that are damaged.
    """
    return [SeedTable(reproduction) for reproduction in load_reproductions(folders)]


def _place(setting: SettingRates) -> tuple[str, int]:
    """Order the settings as Table 1 does, then the others."""
    order = [row.label for row in TABLE_1]
    return setting.part, order.index(setting.label) if setting.label in order else len(order)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    papers = "" if row["paper_percent"] is None else f"{row['paper_percent']:g} %"
    rates = " ".join(f"{100 * seed['wins'] / seed['episodes']:.1f}" for seed in row["seeds"].values())
    wins = " ".join(str(seed["wins"]) for seed in row["seeds"].values())
    episodes = "/".join(map(str, sorted({seed["episodes"] for seed in row["seeds"].values()})))
    fight = f" ({row['scenario']}, {row['start']})" if row["part"] == "reference" else ""
    place = row["setting"] + fight
    return place, papers, f"{100 * row['median_rate']:.1f} %", rates, f"{wins} of {episodes}"
