"""Tables and lines of every command: no name in them is broken, in no terminal and no file."""

import io
import re
import sys

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from soulsgraph.results.tables import OutputConsole, text_table

_words = st.text("abz-_/.19äß", min_size=1, max_size=60)
_cells = st.lists(_words, max_size=5).map(" ".join)


class Terminal(io.StringIO):
    """Standard output that says whether it is a terminal."""

    def __init__(self, shown):
        super().__init__()
        self.shown = shown

    def isatty(self):
        return self.shown


def printed(monkeypatch, shown, *parts, columns="80"):
    """Return what a command prints, in a terminal of 80 columns or into a file."""
    monkeypatch.setenv("COLUMNS", columns)
    output = Terminal(shown)
    monkeypatch.setattr(sys, "stdout", output)
    console = OutputConsole()
    for part in parts:
        console.print(part)
    return re.sub(r"\x1b\[[\d;]*m", "", output.getvalue())


@given(title=_cells, rows=st.lists(st.lists(_cells, min_size=4, max_size=4), max_size=5), width=st.integers(10, 200))
def test_a_table_breaks_no_word_at_any_width(title, rows, width):
    table = text_table(title, ("setting", "wins", "a longer heading", "what"), rows)
    console = Console(width=width, file=io.StringIO(), markup=False, emoji=False)
    console.print(table, crop=False)
    shown = console.file.getvalue().split()
    words = [word for text in (title, *(cell for row in rows for cell in row)) for word in text.split()]
    assert sorted(shown[: len(title.split())]) == sorted(title.split())
    assert all(shown.count(word) >= words.count(word) for word in words)


def test_a_file_gets_whole_rows_and_lines(monkeypatch):
    name = f"{'/folder' * 30}/boss.toml"
    words = " ".join([f"words {name}"] * 5)
    table = text_table(f"Wins, {name}", ("scenario", "what"), [(name, words)])
    text = printed(monkeypatch, False, f"results in {name} and more", table)
    assert f"results in {name} and more\n" in text
    assert f"Wins, {name}\n" in text
    assert f" {name}  {words}" in text
