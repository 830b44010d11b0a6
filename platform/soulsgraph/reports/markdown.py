"""Markdown that GitHub renders: tables, and figures with their intervals as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from soulsgraph.intervals import Interval


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, its first column flush left and the others flush right."""
    ruler = ("---",) + ("---:",) * (len(headings) - 1)
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in (headings, ruler, *rows))


def number(value: float, digits: int = 1) -> str:
    """Return a number with so many decimals, a dash where there is none."""
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
