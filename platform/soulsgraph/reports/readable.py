"""Wide tables made readable: one cell for what belongs together, constant columns stated once above the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from soulsgraph.reports.parquet import Row
from soulsgraph.reports.tables import markdown_table
from soulsgraph_envs.errors import UnknownNameError

_LOW, _HIGH = "_low", "_high"
#: The one value whose bounds are named without it.
_RATE = "rate"
_WINS, _EPISODES = "wins", "episodes"
#: Columns from which on a table says once what is the same in every row, and from which it is turned on its side.
_MANY, _WIDE = 8, 10


@dataclass(frozen=True)
class ReadableTable:
    """Headings, cells as text, and what every row has in common by heading."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    common: tuple[tuple[str, str], ...] = ()

    @property
    def common_line(self) -> str:
        """Return what every row has in common; empty where that is nothing."""
        return "In every row: " + ", ".join(f"{name} {value}" for name, value in self.common) if self.common else ""

    def to_markdown(self) -> str:
        """Return the table as Markdown, what is common in a line before it."""
        return "\n\n".join(filter(None, [self.common_line, markdown_table(self.headings, self.cells)]))


def readable_table(rows: Sequence[Row], columns: Sequence[str] = ()) -> ReadableTable:
    """Make rows of plain values readable; `columns` are those to show, in order, by default all with a value.

    `x` with `x_low` and `x_high` becomes one cell (`rate` with `low` and `high`), and so do `wins` and
    `episodes`. A table with more columns than rows and than fit a page is transposed: its first column
    becomes the headings.

    Raises:
        UnknownNameError: if a column asked for is not there.
    """
    if not rows:
        return ReadableTable(("no rows",), ())
    names = dict.fromkeys(name for row in rows for name in row)
    for column in columns:
        if column not in names:
            raise UnknownNameError("column", column, names)
    shown = list(columns) or [name for name in names if not _folded(name, names) and _says_something(rows, name)]
    texts = {name: [_cell(row, name) for row in rows] for name in shown}
    alike = [name for name in shown[1:] if len({*texts[name]}) == 1] if len(rows) > 1 else []
    common = () if columns or len(shown) <= _MANY else tuple((_heading(name), texts[name][0]) for name in alike)
    left = [name for name in shown if not common or name not in alike]
    headings, cells = [_heading(name) for name in left], [[texts[name][i] for name in left] for i in range(len(rows))]
    if len(left) > max(_WIDE, len(rows)):
        turned = list(zip(headings, *cells, strict=True))
        headings, cells = list(turned[0]), [list(line) for line in turned[1:]]
    return ReadableTable(tuple(headings), tuple(map(tuple, cells)), common)


def _folded(name: str, names: dict[str, None]) -> bool:
    """Return whether this column's values are shown in another column's cells."""
    if name == _EPISODES and _WINS in names:
        return True
    return any(name == bound for base in names for bound in _bounds(base))


def _bounds(name: str) -> tuple[str, str]:
    return ("low", "high") if name == _RATE else (f"{name}{_LOW}", f"{name}{_HIGH}")


def _says_something(rows: Sequence[Row], name: str) -> bool:
    return any(row.get(name) not in (None, "") for row in rows)


def _heading(name: str) -> str:
    return name.replace("_", " ")


def _cell(row: Row, name: str) -> str:
    value, low, high = (row.get(column) for column in (name, *_bounds(name)))
    if name == _WINS and row.get(_EPISODES) is not None:
        return f"{_text(value)}/{_text(row[_EPISODES])}"
    if value is None or low is None:
        return _text(value)
    return f"{_text(value)} ({f'at least {_text(low)}' if high is None else f'{_text(low)} to {_text(high)}'})"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # Three digits that count, those of large numbers without an exponent.
        return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.1f}" if abs(value) >= 10.0 else f"{value:.3g}"
    return str(value)
