"""The report of a reproduction: Markdown for readers, JSON and Parquet for machines, figures for both.

Beside its win rates stand those that earlier reports hold of other seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from soulsgraph.paper import report_sections as sections
from soulsgraph.paper.records import REFERENCE, Records, Reproduction, in_present_names, load_reproductions
from soulsgraph.results.statistics import Interval, Spread, paired_difference
from soulsgraph.results.tables import markdown_table, number, read_rows, readable_table, write_rows
from soulsgraph.runs.plan import RENAMED_PRESETS
from soulsgraph.runs.progress import Board
from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import whole_folder, write_json, write_text
from soulsgraph_envs.skills import SKILL_NAMES

#: Rows whose adjusted p value lies below this differ between the two groups of seeds.
SIGNIFICANCE = 0.05

_NEEDED = ("reproduction", "label", "part", "scenario", "start", "seed", "wins", "episodes")


def load_earlier(reports: Sequence[Path]) -> Mapping[str, Reproduction]:
    """Read the win rates of every seed from the folders of earlier reports, by the reproductions' names.

    Seeds of one name are pooled, whichever report they are from.

    Raises:
        SoulsGraphError: if a folder holds no table of seeds, or a damaged one, or two hold the same seed.
    """
    rows: dict[str, Records] = {}
    for report in reports:
        for name, own in _earlier_rows(report).items():
            known = {(row["label"], row["seed"]) for row in rows.get(name, [])}
            if shared := sorted({row["seed"] for row in own if (row["label"], row["seed"]) in known}):
                found = ", ".join(map(str, shared))
                raise SoulsGraphError(f"{report}: {name}: expected seeds of its own, found {found} in another report.")
            rows[name] = [*rows.get(name, []), *own]
    return {name: Reproduction(name, rows=own) for name, own in rows.items()}


def _earlier_rows(report: Path) -> dict[str, Records]:
    """Read the win rates of every training seed from the folder of a report, by the reproductions' present names.

    Raises:
        SoulsGraphError: if the folder holds no table of seeds, or a damaged one.
    """
    path = report / "tables" / "seeds.parquet"
    rows = read_rows(path)
    missing = [name for name in _NEEDED if not rows or name not in rows[0]]
    if missing:
        raise SoulsGraphError(
            f"{path}: expected the seeds of a report, found no column {missing[0]}; "
            "name the folder that holds an earlier report.md."
        )
    # Scripted references have no training seed.
    trained = [row for row in rows if row["part"] != REFERENCE]
    found = {
        name: [row for row in trained if row["reproduction"] == name] for name in {row["reproduction"] for row in rows}
    }
    present = _present_names(report)
    return {present.get(name, name): own for name, own in found.items()}


def _present_names(report: Path) -> dict[str, str]:
    """Return today's names of the presets in a report from before they were renamed."""
    file = report / "report.json"
    if not file.exists():
        return {}
    where = Where(file, remedy="name the folder that holds an earlier report.md")
    described = read_value(Mapping[str, Any], read_file(where), where).get("reproductions", {})
    return {name: in_present_names(one)["plan"]["preset"] for name, one in described.items() if name in RENAMED_PRESETS}


def agreement_rows(reproductions: Sequence[Reproduction], earlier: Mapping[str, Reproduction]) -> Records:
    """Return each row of Table 1 on these seeds and on the earlier ones, and whether they differ.

    Two-sided Mann-Whitney tests over seeds, which share no value but ties; Holm's adjustment within a reproduction.

    Raises:
        SoulsGraphError: if a seed is in both.
    """
    rows: Records = []
    for item in (item for item in reproductions if item.name in earlier):
        before = earlier[item.name].setting
        compared = [
            _compare(item.name, label, setting.spread, before[label].spread)
            for label, setting in item.setting.items()
            if label in before
        ]
        adjusted = holm([row["p"] for row in compared])
        rows += [
            {**row, "adjusted_p": p, "agree": p >= SIGNIFICANCE} for row, p in zip(compared, adjusted, strict=True)
        ]
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's step-down rule (Holm 1979)."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(count)
    stepped = np.asarray(p_values, np.float64)[order] * (count - np.arange(count))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(p) for p in adjusted]


def agreement_section(rows: Records) -> str:
    """Return the comparison as Markdown; empty without a row."""
    headings = ("row", "preset", "these seeds", "earlier seeds", "difference", "adjusted p", "the two groups")
    cells = [
        (
            row["label"],
            row["reproduction"],
            f"**{number(row['median'])}** {_range(row, '')}",
            f"{number(row['earlier_median'])} {_range(row, 'earlier_')}",
            f"{row['difference']:+.1f} ({row['difference_low']:+.1f} to {row['difference_high']:+.1f})",
            number(row["adjusted_p"], 3),
            "agree" if row["agree"] else "**differ**",
        )
        for row in rows
    ]
    note = (
        "Win rates in %: median (lowest to highest seed), number of seeds; the groups share no seed. The difference is "
        "that of the means in points, with Welch's t interval. Two-sided "
        f"Mann-Whitney tests, Holm's adjustment over the rows of a preset, {SIGNIFICANCE:g} as the limit."
    )
    return f"## Beside earlier seeds\n\n{note}\n\n{markdown_table(headings, cells)}" if rows else ""


def _compare(name: str, label: str, these: Spread, earlier: Spread) -> dict[str, Any]:
    if shared := paired_difference(these, earlier):
        found = ", ".join(map(str, shared.by_seed))
        raise SoulsGraphError(f"{name}: expected seeds that the earlier report lacks, found {found} in both.")
    # Nothing to rank where every seed has the same rate.
    alike = np.unique([*these.values, *earlier.values]).size == 1
    tested = None if alike else scipy.stats.mannwhitneyu(these.values, earlier.values, alternative="two-sided")
    p = float(tested.pvalue) if tested else 1.0
    difference = _difference(these, earlier).columns("difference_")
    mean = {"difference": these.mean - earlier.mean, **difference}
    return {"reproduction": name, "label": label, **_group("", these), **_group("earlier_", earlier), **mean, "p": p}


def _difference(these: Spread, earlier: Spread) -> Interval:
    """Return Welch's t interval (1947) of the difference of the means; unbounded where a group has a single seed."""
    if min(these.values.size, earlier.values.size) < 2:
        return Interval(-math.inf, math.inf)
    if these.deviation == earlier.deviation == 0.0:
        return Interval(these.mean - earlier.mean, these.mean - earlier.mean)
    low, high = scipy.stats.ttest_ind(these.values, earlier.values, equal_var=False).confidence_interval(0.95)
    return Interval(float(low), float(high))


def _group(prefix: str, spread: Spread) -> dict[str, Any]:
    low, high = float(spread.values.min()), float(spread.values.max())
    counted = {f"{prefix}seeds": len(spread.by_seed), f"{prefix}median": spread.median}
    return counted | Interval(low, high).columns(prefix)


def _range(row: Mapping[str, Any], prefix: str) -> str:
    low, high = (number(row[f"{prefix}{name}"]) for name in ("low", "high"))
    return f"({low} to {high}), {row[f'{prefix}seeds']}"


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
    with whole_folder(out / TABLES, replace=True) as folder:
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
    evaluated = (part(item) for item in reproductions for part in (sections.expected_ranges, sections.contrasts))
    yield from _titled("## Expected ranges and differences", evaluated)
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
    with (
        whole_folder(out / FIGURES, replace=True) as folder,
        whole_folder(out / BOARD, replace=True) as events,
        Board(events, SKILL_NAMES) as board,
    ):
        for name, (title, figure) in drawn.items():
            if figure:
                file = folder / f"{name}.png"
                figures.save_figure(figure, file)
                board.image(name, imread(file)[..., :3])
                titles[file.name] = title
    return titles


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
