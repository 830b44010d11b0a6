"""Tables of results: for the terminal, as Markdown and Parquet, growing while a stage runs, wide ones made readable.

In a terminal, or a file that it is written to, no name is broken, so that each can be copied.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from soulsgraph.results.statistics import Interval, WinRate
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import whole_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Takes a fifth of a second to import, and every command prints.
    from soulsgraph_envs.combat.rollout import Episodes

#: More characters than any line has.
_UNLIMITED = 100_000
#: Characters of a line where there is no terminal to ask.
_TEXT_WIDTH = 120


class OutputConsole(Console):
    """A console for text and tables: only the terminal breaks a line of text, and a table breaks at spaces alone.

    Brackets and colons in a path are not markup. What is no terminal has lines of any length and, whatever FORCE_COLOR
    says, no escapes.
    """

    def __init__(self, quiet: bool = False) -> None:
        shown = sys.stdout is not None and sys.stdout.isatty()
        of_terminal: dict[str, Any] = {} if shown else {"force_terminal": False, "width": _UNLIMITED}
        super().__init__(quiet=quiet, markup=False, emoji=False, highlight=False, **of_terminal)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print each in full."""
        texts = all(isinstance(one, (str, Text)) for one in objects)
        super().print(*objects, **{"soft_wrap": texts, "crop": False, **options})


class Printed:
    """What prints itself as the command line shows it."""

    def to_rich(self) -> Sequence[RenderableType]:
        """Return tables and lines for a reader."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(*self.to_rich())


def as_text(*parts: RenderableType) -> str:
    """Return tables and lines as a terminal shows them."""
    console = Console(file=io.StringIO(), width=_TEXT_WIDTH, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines())


def frame_of(rows: Any) -> Any:
    """Return rows, or a table of Arrow's, as a data frame of pandas.

    Raises:
        SoulsGraphError: if pandas is not installed.
    """
    check_extra("a data frame", "train")
    import pandas as pd

    return pd.DataFrame(rows) if isinstance(rows, list) else rows.to_pandas(use_threads=False)


#: Of the cells of a win rate.
HEADINGS = ("setting", "wins", "win rate", "95 % interval", "paper")


@dataclass(frozen=True, repr=False)
class WinRateTable(Printed):
    """Rows under one title."""

    title: str
    rows: tuple[WinRate, ...]

    @property
    def table(self) -> Table:
        """The rows as text."""
        return Table(self.title, HEADINGS, [row.cells for row in self.rows])

    def to_rich(self) -> list[RenderableType]:
        """Return the table for the terminal."""
        return [self.table.to_rich()]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values, for machines."""
        return {"title": self.title, "rows": [row.to_dict() for row in self.rows]}

    @property
    def frame(self) -> Any:
        """A data frame with a row for each row: wins, episodes, the rate with its 95 % interval, the paper's."""
        return frame_of([row.to_dict() for row in self.rows])


@dataclass(frozen=True)
class Table:
    """A table of texts: its title, headings and rows, and a note about it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    note: str = ""

    def plain(self) -> list[dict[str, str]]:
        """Return the rows as plain values."""
        return [dict(zip(self.headings, map(str, row), strict=True)) for row in self.rows]

    def to_rich(self, bare: bool = False) -> RenderableType:
        """Return the table for the terminal, the first column to the left; a `bare` one has no line below its headings.

        Cells break at spaces alone, so that a name in one can be copied: a terminal too narrow for the longest words
        gets lines beyond its width.
        """
        table = RichTable(box=None if bare else SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.show_header = any(self.headings)
        for index, (heading, *cells) in enumerate(zip(self.headings, *self.rows, strict=True)):
            longest = max(cell_len(word) for text in (heading, *cells) for word in str(text).split() or [""])
            table.add_column(heading, justify="right" if index > bare else "left", min_width=longest)
        for row in self.rows:
            table.add_row(*row)
        titles = [
            Text(line, "table.title", no_wrap=True, overflow="ignore") for line in (self.title, self.note) if line
        ]
        return Group(*titles, table)

    def to_markdown(self, level: int = 2, numbers: bool = True) -> str:
        """Return the table below its title, a heading of a `level`; all columns but the first hold `numbers`."""
        title = f"{'#' * level} {self.title}" if self.title else ""
        return "\n\n".join(filter(None, [title, self.note, markdown_table(self.headings, self.rows, numbers)]))


def text_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> RenderableType:
    """Return a plain table for the terminal, the first column to the left."""
    return Table(title, headings, [*rows]).to_rich()


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], numbers: bool = True) -> str:
    """Return a table, its first column flush left and the others, which hold `numbers`, flush right."""
    ruler = ("---",) + ("---:" if numbers else "---",) * (len(headings) - 1)
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in (headings, ruler, *rows))


def render(template: Path, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Return a page of Markdown by its jinja2 template: parts that are left out leave no empty lines."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"cell": cell, "number": number, **(filters or {})}
    text = environment.from_string(template.read_text(encoding="utf-8")).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def number(value: float, digits: int = 1) -> str:
    """Return a number with `digits` decimals, a dash where there is none."""
    # z: what rounds to 0 has no sign.
    return f"{value:z.{digits}f}" if math.isfinite(value) else "-"


def with_interval(value: float, interval: Interval, digits: int = 1) -> str:
    """Return `value (low to high)`; the value alone where the interval is unbounded."""
    if not all(map(math.isfinite, interval)):
        return number(value, digits)
    return f"{number(value, digits)} ({number(interval.low, digits)} to {number(interval.high, digits)})"


def finite(value: Any) -> Any:
    """Return plain values, or such values in tables and lists, with None for what is missing or unbounded."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def seeds_text(count: int) -> str:
    """Return `1 seed` or `10 seeds`."""
    return f"{count} seed{'s' if count != 1 else ''}"


def cell(text: str | Text) -> str:
    """Return text that ends no cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


Row = Mapping[str, str | int | float | bool | None]
#: What to do about a damaged table that a command writes.
REWRITE = "remove it and write the results again"


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as Parquet; a name that a row lacks is a missing value there.

    Raises:
        WriteError: if the place cannot be written; what was there before stays.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    # A file that is open: of a path Arrow takes text alone.
    with whole_file(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file)


def read_rows(path: Path, remedy: str = REWRITE) -> list[dict[str, Any]]:
    """Read rows that `write_rows` wrote; raises as `read_arrow`."""
    rows: list[dict[str, Any]] = read_arrow(path, remedy).to_pylist()
    return rows


def read_arrow(path: Path, remedy: str = REWRITE) -> pa.Table:
    """Read a Parquet file of results.

    Raises:
        ReadError: if the file cannot be read.
        SoulsGraphError: if it is missing, or no Parquet file; the latter ends with `remedy`.
    """

    def damaged(found: str) -> SoulsGraphError:
        return SoulsGraphError(f"{path}: expected a Parquet file of results, found: {found.rstrip('.')}", remedy)

    try:
        with opened_parquet(path, damaged) as file:
            table = file.read(use_threads=False)
            table.validate(full=True)
            # Names are decoded where they are asked for.
            return table.select(table.column_names)
    except FileNotFoundError as error:
        raise SoulsGraphError(
            f"{path}: expected a Parquet file of results, found none; correct the path, or write the results first."
        ) from error


@contextmanager
def opened_parquet(path: Path, damaged: Callable[[str], SoulsGraphError]) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; whatever is wrong with it, here or in the block, becomes the error that `damaged` makes.

    Raises:
        FileNotFoundError: if there is none.
        ReadError: if it cannot be read.
    """
    # Imported here, as above: a help text need not wait for it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        content = path.read_bytes()
    try:
        # Threads that Arrow starts abort the process where it ends at once; of a path it starts one to read ahead.
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            yield file
    except SoulsGraphError:
        raise
    # What damage does to a Parquet file its reader reports in many ways.
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise damaged(first_line(error)) from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, of bounded length."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


_EPISODE_COLUMNS = ("lengths", "seconds", "won", "died", "boss_hp", "player_hp")


def write_episodes(
    path: Path, settings: Mapping[str, Episodes], terms: Sequence[str], origins: Mapping[str, Iterable[Any]]
) -> None:
    """Write finished episodes, one row each, of every named setting.

    `origins` are columns of where an episode came from, as its seed, alike in every setting. Reward terms
    are columns named `term/<name>`.

    Raises:
        WriteError: if the place cannot be written.
    """
    rows = (episode_rows(setting, episodes, terms, origins) for setting, episodes in settings.items())
    write_rows(path, [row for group in rows for row in group])


def episode_rows(
    setting: str, episodes: Episodes, terms: Sequence[str], origins: Mapping[str, Iterable[Any]]
) -> list[Row]:
    """Return finished episodes of a setting as rows; `origins` and `terms` as in `write_episodes`."""
    # Left as numpy's: a seed may need all 64 bits.
    columns: dict[str, list[Any]] = {name: list(values) for name, values in origins.items()}
    columns |= {name: getattr(episodes, name).tolist() for name in _EPISODE_COLUMNS}
    columns |= {"return": episodes.returns.tolist()}
    columns |= {f"term/{name}": episodes.terms[:, i].tolist() for i, name in enumerate(terms)}
    return [
        {"setting": setting, "episode": i, **dict(zip(columns, values, strict=True))}
        for i, values in enumerate(zip(*columns.values(), strict=True))
    ]


class GrowingTable:
    """Rows kept beside a stage and written whole at each checkpoint, so that a resumed stage goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[Row] = [*read_rows(path)] if path.exists() else []

    def add(self, row: Row) -> None:
        """Add one row; it is on disk after the next `flush`."""
        self.rows.append(row)

    def forget(self, stage: str, after_step: int) -> None:
        """Drop the rows of `stage` beyond a step: the checkpoint resumed from is older than they are."""
        self.rows = [row for row in self.rows if row["stage"] != stage or int(row["step"] or 0) <= after_step]

    def flush(self) -> None:
        """Write every row.

        Raises:
            WriteError: if the place cannot be written.
        """
        write_rows(self._path, self.rows)


#: Columns from which on a table says once what is the same in every row, and from which it is turned on its side.
_MANY, _WIDE = 8, 10


def readable_table(title: str, rows: Sequence[Row]) -> Table:
    """Make rows of plain values readable; columns without a value are left out.

    `x` with `x_low` and `x_high` becomes one cell (`rate` with `low` and `high`), and so do `wins` and
    `episodes`. What every row of a wide table has in common is said in its note. A table with more columns than rows
    and than fit a page is transposed: its first column becomes the headings.
    """
    if not rows:
        return Table(title, ("no rows",), ())
    names = dict.fromkeys(name for row in rows for name in row)
    folded = {bound for name in names for bound in _bounds(name)} | ({"episodes"} if "wins" in names else set())
    valued = {name for row in rows for name, value in row.items() if value not in (None, "")}
    shown = [name for name in names if name in valued - folded]
    texts = {name: [name.replace("_", " "), *(_shown_cell(row, name) for row in rows)] for name in shown}
    alike = [name for name in shown[1:] if len({*texts[name][1:]}) == 1]
    if len(shown) <= _MANY or len(rows) == 1:
        alike = []
    left = [texts[name] for name in shown if name not in alike]
    lines = [tuple(text[i] for text in left) for i in range(len(rows) + 1)]
    if len(left) > max(_WIDE, len(rows)):
        lines = [*map(tuple, left)]
    note = "In every row: " + ", ".join(" ".join(texts[name][:2]) for name in alike) if alike else ""
    return Table(title, lines[0], tuple(lines[1:]), note)


def _bounds(name: str) -> tuple[str, str]:
    """Return the columns that hold the ends of a value's interval; those of the one `rate` are named without it."""
    return ("low", "high") if name == "rate" else (f"{name}_low", f"{name}_high")


def _shown_cell(row: Row, name: str) -> str:
    value, low, high = (row.get(column) for column in (name, *_bounds(name)))
    if name == "wins" and row.get("episodes") is not None:
        return f"{_text(value)}/{_text(row['episodes'])}"
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
