"""Tables of win rates, and Markdown: tables, and figures with their intervals as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from soulsgraph.intervals import Interval, wilson_interval

_HEADINGS = ("setting", "wins", "win rate", "95 % interval", "paper")


@dataclass(frozen=True)
class WinRate:
    """One row: the wins of a setting of the agent, and the paper's win rate in percent."""

    setting: str
    wins: int
    episodes: int
    paper_percent: float | None = None

    @property
    def rate(self) -> float:
        """Share of episodes won; 0 without an episode."""
        return self.wins / self.episodes if self.episodes else 0.0

    @property
    def interval(self) -> Interval:
        """Wilson 95 % interval of the rate."""
        return wilson_interval(self.wins, self.episodes)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, one cell a heading."""
        low, high = self.interval
        paper = "" if self.paper_percent is None else f"{self.paper_percent:.1f} %"
        interval = f"{100 * low:.1f}-{100 * high:.1f} %"
        return (self.setting, f"{self.wins}/{self.episodes}", f"{100 * self.rate:.1f} %", interval, paper)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; rates and interval ends are ratios, the paper's is in percent."""
        return {
            "setting": self.setting,
            "wins": self.wins,
            "episodes": self.episodes,
            "rate": self.rate,
            "low": self.interval.low,
            "high": self.interval.high,
            "paper_percent": self.paper_percent,
        }


@dataclass(frozen=True)
class WinRateTable:
    """Rows under one title."""

    title: str
    rows: tuple[WinRate, ...]

    def to_rich(self) -> Table:
        """Return the table for the terminal."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for heading in _HEADINGS:
            # Folded, not cut: a setting may hold the path of a scenario.
            table.add_column(heading, justify="left" if heading == _HEADINGS[0] else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row.cells)
        return table

    def to_markdown(self) -> str:
        """Return the table as Markdown, for TensorBoard's text and for notes."""
        return f"**{self.title}**\n\n{markdown_table(_HEADINGS, (row.cells for row in self.rows))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values, for machines."""
        return {"title": self.title, "rows": [row.to_dict() for row in self.rows]}


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, its first column flush left and the others flush right."""
    ruler = ("---",) + ("---:",) * (len(headings) - 1)
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in (headings, ruler, *rows))


def number(value: float, digits: int = 1) -> str:
    """Return a number with `digits` decimals, a dash where there is none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def with_interval(value: float, interval: Interval, digits: int = 1) -> str:
    """Return `value (low to high)`; the value alone where the interval is unbounded."""
    if not all(map(math.isfinite, interval)):
        return number(value, digits)
    return f"{number(value, digits)} ({number(interval.low, digits)} to {number(interval.high, digits)})"


def seeds_text(count: int) -> str:
    """Return `1 seed` or `10 seeds`."""
    return f"{count} seed{'s' if count != 1 else ''}"


def yes_no(value: bool | None) -> str:
    """Return a verdict as a word; outside is printed bold."""
    return "not measured" if value is None else "inside" if value else "**outside**"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
