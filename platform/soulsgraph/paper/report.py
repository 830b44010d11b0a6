"""The report of a reproduction: the paper's table, expected ranges, measures, figures, and how it was made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from soulsgraph.pages.report import Report, Section
from soulsgraph.paper import figures, records
from soulsgraph.paper.records import Reproduction, SettingRates, load_reproductions
from soulsgraph.paper.study import TABLE_1_PARTS, Records
from soulsgraph.results import statistics
from soulsgraph.results.seeds import (
    FIGURE_HEADINGS,
    difference_columns,
    figure_cells,
    figures_of,
    interval_cell,
    mean_text,
)
from soulsgraph.results.tables import Table, number
from soulsgraph.runs.evaluate import TABLE_1

Row = Mapping[str, Any]


def report_tables(reproductions: Sequence[Reproduction]) -> dict[str, Records]:
    """Return the tables for machines by name; win rates are in percent.

    Every setting with its figures over seeds and the paper's with its intervals; every seed with its own interval;
    every expected range with the value found; measures; differences within a reproduction, and from the first one.
    """
    tables: dict[str, Records] = {
        name: [] for name in ("settings", "seeds", "expected_ranges", "measures", "differences", "comparison")
    }
    for item in reproductions:
        of = {"reproduction": item.name}
        for setting in item.settings:
            place = of | {name: getattr(setting, name) for name in ("label", "part", "scenario", "start")}
            tables["settings"].append(place | _paper(setting) | figures_of(setting.spread))
            for seed, rate in setting.seeds.items():
                counts = {"seed": seed, "wins": rate.wins, "episodes": rate.episodes, "percent": rate.percent}
                tables["seeds"].append(place | counts | rate.interval.scaled(100.0).columns())
        tables["expected_ranges"] += [of | asdict(verdict) for verdict in records.verdicts_of(item)]
        tables["measures"] += [of | {"measure": name} | figures_of(one) for name, one in item.measure.items()]
        for first, second in records.CONTRASTS:
            apart = difference_columns(item.rates(first), item.rates(second))
            tables["differences"] += [of | {"first": first, "second": second} | apart] if apart["seeds"] else []
        if item is not reproductions[0]:
            tables["comparison"] += _comparison_rows(reproductions[0], item)
    return tables


def _paper(setting: SettingRates) -> dict[str, Any]:
    """Return the paper's win rate in percent, its counts, and its Wilson and exact intervals."""
    if setting.paper_percent is None:
        return {"paper_percent": None}
    paper = records.paper_rate(setting.paper_percent)
    counts = {"paper_percent": setting.paper_percent, "paper_wins": paper.wins, "paper_episodes": paper.episodes}
    exact = statistics.clopper_pearson_interval(paper.wins, paper.episodes)
    wilson = paper.interval.scaled(100.0).columns("paper_wilson_")
    return counts | wilson | exact.scaled(100.0).columns("paper_exact_")


def _comparison_rows(reference: Reproduction, item: Reproduction) -> Records:
    """Return the differences of a further reproduction from the first: paired by seed, of other seeds Welch's.

    `overlap` is whether the t intervals of the two means overlap, None if one has a single seed.
    """
    rows: Records = []
    for label in (label for label in item.setting if label in reference.setting):
        mine, first = item.setting[label].spread, reference.setting[label].spread
        several = min(len(mine), len(first)) > 1
        overlap = statistics.mean_interval(mine).overlaps(statistics.mean_interval(first)) if several else None
        columns = difference_columns(mine, first)
        if not columns["seeds"]:
            apart = statistics.welch_interval(mine, first).columns("mean_")
            columns |= {"mean": float(mine.mean() - first.mean()), **apart}
        rows.append({"reproduction": item.name, "from": reference.name, "label": label, "overlap": overlap} | columns)
    return rows


#: Measures that are shares of decisions begin so.
_SHARE = "share of "
#: What a description holds for programs, or is shown session by session.
_OF_THE_FILE = ("format", "format_version", "sessions")
_ABOUT = (
    'Every row of Table 1 of "Learning Transferable Skills in Action RPGs via Directed Skill Graphs and Selective '
    'Adaptation" beside what the simulator gives. The median over training seeds decides whether a row lies inside its '
    "expected range; rows outside stay as they came out, and no seed is left out."
)
_COMPUTED = """\
- A training seed is one observation. Episodes of different seeds are never pooled as if they were independent.
- A single agent's win rate has its Wilson 95 % interval; counts stand beside every percentage.
- Over seeds: the median; the mean with Student's t interval; the interquartile mean with a stratified bootstrap
  interval (Agarwal et al. 2021, rliable); the standard deviation with its chi-square interval, which takes normal
  scatter for granted. One seed alone has no interval over seeds, and a t interval knows no bounds at 0 or 100 %.
- Differences between rows and between presets are taken within each seed first; their t interval is over those.
- Every seed plays the same evaluation episodes, so random or scripted play gives every seed the same figure unless
  trained skills play with it.
- The paper states 25 episodes a setting, but 33.3 % and 12.5 % are no multiples of 1/25: they fit 8/24 and 3/24. Their
  intervals are those of 24 episodes; every other row's are those of 25.
- Wilson and exact (Clopper-Pearson) intervals stand beside the paper's figures: so few episodes leave each of them
  tens of points wide, and they say nothing of training seeds, of which the paper reports one.
- A seed collapses in fine-tuning when its fine-tuned win rate lies below its own zero-shot one."""


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the report of one or several reproductions and return its Markdown file; what was not recorded is left out.

    Raises:
        SoulsGraphError: if a folder holds no records.
        WriteError: if the place cannot be written.
    """
    reproductions = load_reproductions(folders)
    tables = report_tables(reproductions)
    kept = {name: rows for name, rows in tables.items() if rows}
    described = {item.name: {"seeds": item.seeds, **item.description} for item in reproductions}
    report = Report("The paper's results, reproduced", [*_sections(reproductions, tables)])
    return report.write(out, {"reproductions": described, "tables": kept}, kept)


def _sections(reproductions: Sequence[Reproduction], tables: Mapping[str, Records]) -> Iterator[Section]:
    def of(item: Reproduction, table: str) -> Records:
        return [row for row in tables[table] if row["reproduction"] == item.name]

    lines = []
    for item in reproductions:
        outside = (row for row in of(item, "expected_ranges") if row["inside"] is False)
        rows = [f"{row['subject']} ({row['found']} instead of {row['expected']})" for row in outside]
        lines.append(f"- {item.title}: {'; '.join(rows) or 'nothing'}")
    yield Section("Outside the expected range", (_ABOUT, "\n".join(lines)))
    yield Section("Table 1", tables=[table for item in reproductions for table in _table_1(item)])
    if len(reproductions) > 1:
        yield Section("Beside each other", tables=[*_beside(reproductions, tables["comparison"])])
    yield Section("Figures", pictures=_pictures(reproductions))
    ranges = []
    for item in reproductions:
        found = [
            (row["subject"], row["expected"], row["found"], yes_no(row["inside"]))
            for row in of(item, "expected_ranges")
        ]
        ranges.append(Table(f"Expected ranges, {item.title}", ("of", "expected", "found", "verdict"), found))
        apart = [
            (f"{row['first']} - {row['second']}", *_difference_cells(row), number(row["median"]))
            for row in of(item, "differences")
        ]
        title = f"Differences between rows, {item.title}, paired by seed"
        ranges.append(Table(title, ("difference", *_DIFFERENCE, "median points"), apart))
    yield Section("Expected ranges and differences", tables=ranges)
    yield Section("Measures and controls", tables=[table for item in reproductions for table in _measured(item)])
    made = [Table(f"How {item.title} was made", ("what", "value"), _origin(item)) for item in reproductions]
    yield Section("Seeds, versions, machine and time", tables=made)
    yield Section("How the figures are computed", (_COMPUTED,))


def _table_1(item: Reproduction) -> Iterator[Table]:
    cells, each, seeds = [], [], sorted({seed for setting in item.setting.values() for seed in setting.seeds})
    for label, setting in item.setting.items():
        row, expected = figures_of(setting.spread) | _paper(setting), records.ROW_RANGES[label]
        wilson, exact = (
            f"{number(row[f'paper_{kind}_low'])} to {number(row[f'paper_{kind}_high'])}" for kind in ("wilson", "exact")
        )
        count = f"{row['paper_wins']}/{row['paper_episodes']}"
        paper = f"{row['paper_percent']:.1f} ({count}; Wilson {wilson}; exact {exact})"
        verdict = (expected.text(), yes_no(expected.holds(row["median"])))
        verdict = ("", "") if item.preset in records.BEYOND_PAPER else verdict
        cells.append((label, paper, str(row["seeds"]), *figure_cells(row), *verdict))
        rates = {
            seed: f"{rate.wins}/{rate.episodes}: {rate.percent:.1f} ({100.0 * low:.1f} to {100.0 * high:.1f})"
            for seed, rate in setting.seeds.items()
            for low, high in [rate.interval]
        }
        each.append((label, *(rates.get(seed, "") for seed in seeds)))
    headings = ("row", "paper", "seeds", *FIGURE_HEADINGS, "expected", "median is")
    yield Table(f"{item.title}: win rates in %, {item.seeds_told}", headings, cells)
    yield Table(f"{item.title}: each seed", ("row", *(f"seed {seed}" for seed in seeds)), each)


_DIFFERENCE = ("points (t interval)", "seeds above / below")


def _difference_cells(row: Row) -> tuple[str, str]:
    """Return what `difference_columns` has."""
    if not row["seeds"]:
        return interval_cell(row, "mean"), "no shared seed"
    return interval_cell(row, "mean"), f"{row['seeds_above']} / {row['seeds_below']} of {row['seeds']}"


def _beside(reproductions: Sequence[Reproduction], comparison: Records) -> Iterator[Table]:
    rows = []
    for row in TABLE_1:
        spreads = [item.rates(row.label) for item in reproductions]
        paper = "" if row.paper_percent is None else f"{row.paper_percent:.1f}"
        medians = [f"**{number(one.median())}**; {mean_text(one)}" if len(one) else "" for one in spreads]
        rows.append((row.label, paper, *medians))
    title = "Win rates in %: median over seeds; mean (t interval)"
    yield Table(title, ("row", "paper", *(item.title for item in reproductions)), rows)
    verdicts = {True: "overlap", False: "**apart**", None: ""}
    cells = [
        (row["label"], f"{row['reproduction']} - {row['from']}", *_difference_cells(row), verdicts[row["overlap"]])
        for row in comparison
    ]
    headings = ("row", "difference", *_DIFFERENCE, "t intervals of the means")
    yield Table("Differences, paired by seed; of other seeds with Welch's interval", headings, cells)


def _measured(item: Reproduction) -> Iterator[Table]:
    """Yield measures with what is derived from them, how often actions were chosen, and settings beside Table 1."""
    derived = {
        "dodge seconds, trained over random": records.dodge_ratio(item),
        "end-to-end seconds, end over beginning of training": records.baseline_growth(item),
    }
    derived |= {
        f"{skill}: share of the scripted gain over random": records.gain_share(item, skill)
        for skill in records.GAIN_SHARES
    }
    measured = {name: spread for name, spread in item.measure.items() if not name.startswith(_SHARE)}
    shares = {name.removeprefix(_SHARE): 100.0 * one for name, one in item.measure.items() if name not in measured}
    actions = dict(sorted(shares.items(), key=lambda item: -item[1].median()))
    known = {name: spread for name, spread in derived.items() if len(spread)}
    yield _spreads(f"Measures, {item.title}", "measure", measured | known)
    title = f"What the end-to-end agent does, {item.title}: % of its greedy decisions"
    yield _spreads(title, "action", actions)
    others = []
    for one in (one for one in item.settings if one.part not in TABLE_1_PARTS):
        won = ", ".join(f"{rate.wins}/{rate.episodes}" for rate in one.seeds.values())
        others.append((f"{one.label} ({one.scenario}, {one.start})", *figure_cells(figures_of(one.spread)), won))
    headings = ("setting", *FIGURE_HEADINGS, "each seed")
    yield Table(f"Other settings, {item.title}: win rates in %", headings, others)


def _spreads(title: str, what: str, spreads: Mapping[str, pd.Series]) -> Table:
    rows = []
    for name, spread in spreads.items():
        digits = 2 if abs(spread.median()) < 10.0 else 1
        each = ", ".join(number(value, digits) for value in spread)
        rows.append((name, *figure_cells(figures_of(spread), digits), each))
    return Table(title, (what, *FIGURE_HEADINGS, "each seed"), rows)


def _origin(reproduction: Reproduction) -> list[tuple[str, str]]:
    """Return seeds, plan, versions, machine and wall time as recorded; a later session what changed since the last."""
    facts = {name: value for name, value in reproduction.description.items() if name not in _OF_THE_FILE}
    rows = [("seeds done", ", ".join(map(str, reproduction.seeds))), *_flat(facts)]
    before: Row = {}
    for index, session in enumerate(reproduction.description.get("sessions", ()), 1):
        changed = {name: value for name, value in session.items() if value != before.get(name)}
        rows += _flat(changed, f"session {index} ")
        before = session
    return rows


def _flat(values: Row, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{prefix}{name}".replace("_", " "), text


def yes_no(value: bool | None) -> str:
    """Return a verdict as a word; outside is printed bold."""
    return "not measured" if value is None else "inside" if value else "**outside**"


def _pictures(reproductions: Sequence[Reproduction]) -> dict[str, Figure | None]:
    pictures = {"table-1.png": figures.draw_win_rates(reproductions)}
    for item in reproductions:
        slug = re.sub(r"[^a-z0-9]+", "-", item.name.lower()).strip("-")
        pictures |= {
            f"figures-2-3-{slug}.png": figures.draw_skill_returns(item),
            f"figure-5-{slug}.png": figures.draw_baseline(item),
            f"figure-6-{slug}.png": figures.draw_dodge_lengths(item),
        }
    return pictures
