"""A part of a report that is written twice: as Markdown with its figures beside it, and as HTML with them inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from soulsgraph.pages import Html, data_uri, section, table, tag
from soulsgraph.results.tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The folder of a report's figures.
PICTURES = "figures"


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
