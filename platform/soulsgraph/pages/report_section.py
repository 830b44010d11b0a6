"""A part of a report, as Markdown with its figures beside it and as HTML with them inside; the report's folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soulsgraph.pages import Html, data_uri, section, table, tag
from soulsgraph.results.tables import Row, markdown_table, write_rows
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_file, write_json, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The folders of a report's figures, tables and events of TensorBoard.
PICTURES, TABLES, BOARD = "figures", "tables", "tensorboard"
#: A report in plain values, and its key for the names of the files in those folders.
DATA, _FILES = "report.json", "files"
_OURS = re.compile(rf"(?:{PICTURES}|{TABLES}|{BOARD})(?:/\w[\w.+-]*)+")


@dataclass(frozen=True)
class ReportSection:
    """A part of a report: its title, what is said, tables as headings with rows, and figures by file name."""

    title: str
    notes: tuple[str, ...] = ()
    tables: tuple[tuple[Sequence[str], Sequence[Sequence[str]]], ...] = ()
    pictures: Mapping[str, Figure | None] = field(default_factory=dict)

    @property
    def drawn(self) -> dict[str, Figure]:
        """The figures that there are."""
        return {name: figure for name, figure in self.pictures.items() if figure is not None}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.notes or self.drawn or any(rows for _, rows in self.tables))

    def to_markdown(self) -> str:
        """Return the part as Markdown; its figures lie in `figures`."""
        shown = [markdown_table(headings, rows) for headings, rows in self.tables if rows]
        images = [f"![{self.title}]({PICTURES}/{name}.png)" for name in self.drawn]
        return "\n\n".join([f"## {self.title}", *self.notes, *shown, *images])

    def to_html(self, images: Mapping[str, bytes]) -> Html:
        """Return the part as HTML with its figures inside."""
        notes = [tag("p", note, class_="faint") for note in self.notes]
        shown = [table(headings, rows) for headings, rows in self.tables if rows]
        sources = [data_uri("image/png", images[name]) for name in self.drawn]
        drawn = [tag("div", tag("img", src=source, alt=self.title), class_="wide") for source in sources]
        return section(self.title, *notes, *shown, *drawn)


class ReportFolder:
    """The folder that a report is written into; of what is there only files of an earlier report are replaced.

    Its methods raise WriteError if the place cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: set[str] = set()

    def add_picture(self, name: str, content: bytes) -> None:
        """Write a figure."""
        with whole_file(self._place(f"{PICTURES}/{name}.png")) as temporary:
            temporary.write_bytes(content)

    def add_table(self, name: str, rows: Sequence[Row]) -> None:
        """Write rows as Parquet."""
        write_rows(self._place(f"{TABLES}/{name}.parquet"), rows)

    def add_events(self, folder: Path) -> None:
        """Copy TensorBoard's files from a folder."""
        for file in (path for path in folder.rglob("*") if path.is_file()):
            with whole_file(self._place(f"{BOARD}/{file.relative_to(folder).as_posix()}")) as temporary:
                shutil.copyfile(file, temporary)

    def end(self, values: Mapping[str, Any]) -> None:
        """Write `report.json`, and remove what an earlier report left in the folders and this one does not have."""
        earlier = _files_of(self.path / DATA)
        write_json(self.path / DATA, {**values, _FILES: sorted(self._files)})
        for name in earlier - self._files:
            with writing(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        self._files.add(name)
        return self.path / name


def _files_of(report: Path) -> set[str]:
    """Return the names of files in the folders beside a report; none of one that cannot be read, or is not ours."""
    with suppress(SoulsGraphError):
        values = read_file(Where(report))
        named = values.get(_FILES) if isinstance(values, dict) else None
        if isinstance(named, list):
            return {name for name in named if isinstance(name, str) and _OURS.fullmatch(name)}
    return set()
