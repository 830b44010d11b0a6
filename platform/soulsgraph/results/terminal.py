"""What people read in a terminal, or in a file that it is written to: no name is broken, so that each can be copied."""

from __future__ import annotations

import sys
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

#: More characters than any line has.
_UNLIMITED = 100_000


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


class TextTable(Table):
    """A table whose cells break at spaces alone, so that a name or a path in it can be copied.

    A terminal too narrow for the longest words gets lines beyond its width.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title as one line, then the table with its columns at widths that break no word."""
        title, self.title = self.title, None
        if title:
            yield Text(str(title), "table.title", no_wrap=True, overflow="ignore")
        width = self._fit(console, options)
        yield from super().__rich_console__(console, options.update(width=width))
        self.title = title

    def _fit(self, console: Console, options: ConsoleOptions) -> int:
        """Set the columns' widths, and return the table's: the widest are narrowed as far as their words allow."""
        for column in self.columns:
            column.width = None
        texts = [[str(text) for text in (column.header, *column.cells)] for column in self.columns]
        widths = [max(cell_len(line) for text in cells for line in (text.splitlines() or [""])) for cells in texts]
        least = [max(cell_len(word) for text in cells for word in (text.split() or [""])) for cells in texts]
        whole = super().__rich_measure__(console, options.update(width=_UNLIMITED)).maximum
        beside = whole - sum(widths)
        while sum(widths) + beside > options.max_width and widths != least:
            widest = max(range(len(widths)), key=lambda index: widths[index] * (widths[index] > least[index]))
            widths[widest] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        return sum(widths) + beside
