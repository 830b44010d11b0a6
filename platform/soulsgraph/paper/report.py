"""The report of a reproduction: Markdown for readers, JSON and Parquet for machines, figures for both."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soulsgraph.files import write_json, write_text
from soulsgraph.paper import report_sections as sections
from soulsgraph.paper.earlier import agreement_rows, agreement_section, load_earlier
from soulsgraph.paper.records import Reproduction, load_reproductions
from soulsgraph.progress import Board
from soulsgraph.tables import read_rows, readable_table, write_rows
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.atomic import whole_folder


@dataclass(frozen=True)
class Attachment:
    """A Parquet table, its title, and the columns to show; none for all with a value."""

    title: str
    path: Path
    columns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Attachment:
        """Read `TITLE=PATH.parquet`, or `TITLE=PATH.parquet:COLUMN,COLUMN`.

        Raises:
            SoulsGraphError: if it is neither.
        """
        found = re.fullmatch(r"([^=]*[^=\s][^=]*)=(.+)\.parquet(?::(.*))?", text)
        if not found:
            raise SoulsGraphError(
                f"`attachments`: expected TITLE=PATH.parquet, with :COLUMN,COLUMN behind it to choose columns, "
                f"found {text!r}; write for example 'Retention=runs/a/results/retention.parquet'."
            )
        title, stem, columns = found.groups("")
        names = (name.strip() for name in columns.split(","))
        return cls(title.strip(), Path(f"{stem.strip()}.parquet"), tuple(filter(None, names)))

    def to_markdown(self) -> str:
        """Return the section of a report.

        Raises:
            SoulsGraphError: if the file is missing or no Parquet file.
            UnknownNameError: if a column is not there.
        """
        return f"## {self.title}\n\n{readable_table(read_rows(self.path), self.columns).to_markdown()}"


REPORT, FIGURES, TABLES, BOARD = "report.md", "figures", "tables", "tensorboard"
#: The text around what a report finds.
_TEMPLATE = Path(__file__).with_name("report_template.md")


def write_report(
    folders: Sequence[Path],
    out: Path,
    variants: Sequence[Path] = (),
    attachments: Sequence[Attachment] = (),
    earlier: Sequence[Path] = (),
) -> Path:
    """Write the report of one or several reproductions and return its Markdown file.

    Beside `report.md` lie `report.json`, `tables/*.parquet`, `figures/*.png` and `tensorboard/`; each is written
    whole, the Markdown last. `variants` become the rows of the ablation table, the first being the reference;
    `attachments` are tables of other tools; `earlier` are folders of reports on other seeds to compare with, pooled.
    Whatever was not recorded is left out.

    Raises:
        SoulsGraphError: if a folder holds no records, or some that are damaged, or shares a seed with `earlier`.
        WriteError: if the place cannot be written.
    """
    reproductions, ablated = load_reproductions(folders), load_reproductions(variants)
    agreement = agreement_rows(reproductions, load_earlier(earlier))
    tables = sections.report_tables(reproductions, ablated) | ({"agreement": agreement} if agreement else {})
    extra = [attachment.to_markdown() for attachment in attachments]
    pictures = _write_figures(reproductions, out)
    with _renewed(out / TABLES) as folder:
        for name, rows in tables.items():
            write_rows(folder / f"{name}.parquet", rows)
    described = {
        kind: {item.name: {"seeds": item.seeds, **item.description} for item in items}
        for kind, items in (("reproductions", reproductions), ("variants", ablated))
    }
    write_json(out / "report.json", _finite({**described, "tables": tables, "figures": pictures}))
    opening = [sections.outside(reproductions), agreement_section(agreement)]
    text = [*opening, *_sections(reproductions, pictures), sections.ablation(ablated), *extra]
    names = {item.name for item in reproductions}
    made = (*reproductions, *(item for item in ablated if item.name not in names))
    text += _titled("## Seeds, versions, machine and time", map(sections.description, made))
    results = "\n\n".join(filter(None, text))
    write_text(out / REPORT, _TEMPLATE.read_text(encoding="utf-8").replace("{results}", results))
    return out / REPORT


def _sections(reproductions: Sequence[Reproduction], pictures: Mapping[str, str]) -> Iterator[str]:
    yield from _titled("## Table 1", map(sections.table_1, reproductions))
    yield sections.beside_each_other(reproductions)
    yield from _titled("## Figures", (f"![{title}]({FIGURES}/{file})" for file, title in pictures.items()))
    evaluated = (part(item) for item in reproductions for part in (sections.aims, sections.contrasts))
    yield from _titled("## Aims and differences", evaluated)
    parts = (sections.measures, sections.end_to_end, sections.other_settings)
    yield from _titled("## Measures and controls", (part(item) for item in reproductions for part in parts))


def _titled(title: str, parts: Iterable[str]) -> list[str]:
    found = [part for part in parts if part]
    return [title, *found] if found else []


def _write_figures(reproductions: Sequence[Reproduction], out: Path) -> dict[str, str]:
    """Write every figure as PNG and for TensorBoard; return their titles by file name."""
    # Takes a second to import, and most commands never draw.
    from matplotlib.image import imread

    from soulsgraph.paper import figures

    drawn = {"table-1": ("Win rates of every seed beside the paper's", figures.draw_win_rates(reproductions))}
    drawers = {
        "figures-2-3": ("Return over steps of the five skills", figures.draw_skill_returns),
        "figure-5": ("Return and episode length of the end-to-end baseline", figures.draw_baseline),
        "figure-6": ("Dodge's episode length beside random dodging", figures.draw_dodge_lengths),
    }
    for item in reproductions:
        slug = re.sub(r"[^a-z0-9]+", "-", item.name.lower()).strip("-")
        drawn |= {f"{name}-{slug}": (f"{title}, {item.title}", draw(item)) for name, (title, draw) in drawers.items()}
    titles = {}
    with _renewed(out / FIGURES) as folder, _renewed(out / BOARD) as events, Board(events, SKILL_NAMES) as board:
        for name, (title, figure) in drawn.items():
            if figure:
                file = folder / f"{name}.png"
                figures.save_figure(figure, file)
                board.image(name, imread(file)[..., :3])
                titles[file.name] = title
    return titles


@contextmanager
def _renewed(path: Path) -> Iterator[Path]:
    with whole_folder(path) as temporary:
        yield temporary
        # What cannot be removed makes writing the new folder fail with an error.
        shutil.rmtree(path, ignore_errors=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
