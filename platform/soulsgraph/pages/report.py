"""A report: sections of notes, tables and figures, as Markdown and as one page of HTML that is made of the Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

from soulsgraph.pages import data_uri, page
from soulsgraph.results.tables import Row, Table, finite, write_rows
from soulsgraph_envs.core.files import whole_file, write_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The files of a report, and its folders.
REPORT, PAGE, DATA, FIGURES, TABLES = "report.md", "page.html", "report.json", "figures", "tables"


@dataclass(frozen=True)
class Section:
    """A part of a report; pictures, by the names of their files, are figures or contents, or None where there is none.

    A section with neither notes nor rows nor pictures is left out.
    """

    title: str
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Mapping[str, Figure | bytes | None] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Return the section as Markdown; empty where there is nothing to show."""
        tables = [table.to_markdown(level=3) for table in self.tables if table.rows]
        pictures = [f"![{self.title}]({FIGURES}/{name})" for name, one in self.pictures.items() if one is not None]
        parts = [*self.notes, *tables, *pictures]
        return "\n\n".join([*([f"## {self.title}"] if self.title else []), *parts]) if parts else ""


@dataclass(frozen=True)
class Report:
    """A title and sections."""

    title: str
    sections: Sequence[Section]

    def write(self, folder: Path, values: Any, tables: Mapping[str, Sequence[Row]]) -> Path:
        """Write `report.md`, which is returned, `page.html`, figures, rows as Parquet, and plain values as JSON.

        Raises:
            WriteError: if the place cannot be written.
        """
        pictures = self._drawn()
        for name, content in pictures.items():
            with whole_file(folder / FIGURES / name) as temporary:
                temporary.write_bytes(content)
        for name, rows in tables.items():
            write_rows(folder / TABLES / f"{name}.parquet", finite(rows))
        write_json(folder / DATA, finite(values))
        write_text(folder / PAGE, self._to_html(pictures))
        write_text(folder / REPORT, self.to_markdown())
        return folder / REPORT

    def to_markdown(self) -> str:
        """Return the report as Markdown; its pictures lie in `figures`."""
        return "\n\n".join(filter(None, [f"# {self.title}", *(one.to_markdown() for one in self.sections)])) + "\n"

    def to_html(self) -> str:
        """Return the report as one page with its pictures in it."""
        return self._to_html(self._drawn())

    def _drawn(self) -> dict[str, bytes]:
        # Imported here: every training has a page, few draw one.
        from soulsgraph.results.figures import png_of

        pictures = {name: one for section in self.sections for name, one in section.pictures.items() if one is not None}
        return {name: one if isinstance(one, bytes) else png_of(one) for name, one in pictures.items()}

    def _to_html(self, pictures: Mapping[str, bytes]) -> str:
        # Imported here, as in `page`.
        from markupsafe import Markup

        def embedded(_: Any, tokens: Sequence[Any], place: int, *options: Any) -> str:
            name = str(tokens[place].attrs["src"]).removeprefix(f"{FIGURES}/")
            kind = guess_type(name)[0] or ""
            source = data_uri(kind, pictures[name])
            if kind.startswith("video/"):
                return f'<video src="{source}" controls loop muted playsinline></video>'
            return f'<img src="{source}" alt="{escapeHtml(tokens[place].content)}">'

        # Names that somebody chose are neither elements nor links.
        reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "entity"])
        reader.add_render_rule("image", embedded)
        tokens = reader.parse(self.to_markdown())
        for token in tokens:
            # The page's own style aligns cells: it admits no other.
            token.attrs.pop("style", None)
        return page(self.title, body=Markup(reader.renderer.render(tokens, reader.options, {})))
