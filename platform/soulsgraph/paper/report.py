"""The report of a reproduction: Markdown for readers, JSON and Parquet for machines, figures for both.

Beside its win rates stand those that earlier reports hold of other seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from soulsgraph.pages.report_section import ReportFolder
from soulsgraph.paper import figures, records
from soulsgraph.paper.records import Reproduction, SettingRates, load_reproductions
from soulsgraph.paper.study import REFERENCE, TABLE_1_PARTS, Records
from soulsgraph.results import statistics
from soulsgraph.results.figures import png_of
from soulsgraph.results.seeds import SEED_FILTERS, SeedValues, difference_columns, paired_difference
from soulsgraph.results.statistics import Interval
from soulsgraph.results.tables import finite, markdown_table, number, read_rows, render, yes_no
from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder, write_text

Row = Mapping[str, Any]

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
    """Read the win rates of every training seed from the folder of a report, by the reproductions' names.

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
    return {
        name: [row for row in trained if row["reproduction"] == name] for name in {row["reproduction"] for row in rows}
    }


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
        adjusted = statistics.holm([row["p"] for row in compared])
        rows += [
            {**row, "adjusted_p": p, "agree": p >= SIGNIFICANCE} for row, p in zip(compared, adjusted, strict=True)
        ]
    return rows


def _compare(name: str, label: str, these: SeedValues, earlier: SeedValues) -> dict[str, Any]:
    if shared := paired_difference(these, earlier):
        found = ", ".join(map(str, shared.by_seed))
        raise SoulsGraphError(f"{name}: expected seeds that the earlier report lacks, found {found} in both.")
    p = statistics.rank_test(these.values, earlier.values)
    difference = statistics.welch_interval(these.values, earlier.values).columns("difference_")
    mean = {"difference": these.mean - earlier.mean, **difference}
    return {"reproduction": name, "label": label, **_group("", these), **_group("earlier_", earlier), **mean, "p": p}


def _group(prefix: str, spread: SeedValues) -> dict[str, Any]:
    low, high = float(spread.values.min()), float(spread.values.max())
    counted = {f"{prefix}seeds": spread.seeds, f"{prefix}median": spread.median}
    return counted | Interval(low, high).columns(prefix)


def report_tables(
    reproductions: Sequence[Reproduction], variants: Sequence[Reproduction], earlier: Mapping[str, Reproduction]
) -> dict[str, Records]:
    """Return the tables for machines by name; win rates are in percent.

    Every setting with its figures over seeds and the paper's with its intervals; every seed with its own interval;
    every expected range with the value found; measures; differences within and between reproductions; the ablation;
    agreement with earlier seeds.
    """
    settings = [(item.name, _place(setting), setting) for item in reproductions for setting in item.settings]
    tables: dict[str, Records] = {
        "settings": [
            {"reproduction": name, **place, **_paper(setting), **setting.spread.columns()}
            for name, place, setting in settings
        ],
        "seeds": [
            {"reproduction": name, **place, "seed": seed, "wins": rate.wins, "episodes": rate.episodes}
            | {"percent": rate.percent, **rate.interval.scaled(100.0).columns()}
            for name, place, setting in settings
            for seed, rate in setting.seeds.items()
        ],
        "expected_ranges": [
            {"reproduction": item.name, **asdict(verdict)}
            for item in reproductions
            for verdict in records.verdicts_of(item)
        ],
        "measures": [
            {"reproduction": item.name, "measure": name, **spread.columns()}
            for item in reproductions
            for name, spread in item.measure.items()
        ],
        "differences": [row for item in reproductions for row in _contrast_rows(item)],
        "comparison": [row for item in reproductions[1:] for row in _comparison_rows(reproductions[0], item)],
        "ablation": _ablation_rows(variants),
        "agreement": agreement_rows(reproductions, earlier),
    }
    return tables


def _place(setting: SettingRates) -> dict[str, str]:
    return {"label": setting.label, "part": setting.part, "scenario": setting.scenario, "start": setting.start}


def _paper(setting: SettingRates) -> Row:
    """Return the paper's win rate in percent, its counts, and its Wilson and exact intervals."""
    if setting.paper_percent is None:
        return {"paper_percent": None}
    paper = records.paper_rate(setting.paper_percent)
    counts = {"paper_percent": setting.paper_percent, "paper_wins": paper.wins, "paper_episodes": paper.episodes}
    exact = statistics.clopper_pearson_interval(paper.wins, paper.episodes)
    wilson = paper.interval.scaled(100.0).columns("paper_wilson_")
    return counts | wilson | exact.scaled(100.0).columns("paper_exact_")


def _contrast_rows(reproduction: Reproduction) -> Records:
    """Return the differences between rows within a reproduction."""
    spreads = {label: setting.spread for label, setting in reproduction.setting.items()}
    rows = [
        {"reproduction": reproduction.name, "first": first, "second": second}
        | difference_columns(spreads[first], spreads[second])
        for first, second in records.CONTRASTS
        if first in spreads and second in spreads
    ]
    return [row for row in rows if row["seeds"]]


def _comparison_rows(reference: Reproduction, item: Reproduction) -> Records:
    """Return the differences of a further reproduction from the first.

    `overlap` is whether the t intervals of the two means overlap, None if one has a single seed.
    """
    rows: Records = []
    for label in (label for label in item.setting if label in reference.setting):
        mine, first = item.setting[label].spread, reference.setting[label].spread
        several = min(len(mine.by_seed), len(first.by_seed)) > 1
        overlap = mine.mean_interval.overlaps(first.mean_interval) if several else None
        names = {"reproduction": item.name, "from": reference.name, "label": label, "overlap": overlap}
        rows.append({**names, **difference_columns(mine, first)})
    return rows


def _ablation_rows(variants: Sequence[Reproduction]) -> Records:
    """Return each variant's median and deviation in the rows that matter, and one score over all of them.

    The score is the interquartile mean over seeds and rows with its stratified bootstrap interval; its
    difference is that of each seed's mean over the rows from the first variant's, paired by seed.
    """
    rows: Records = []
    reference = None
    for variant in variants:
        scores = _scores(variant)
        mine = SeedValues({seed: float(np.mean(each)) for seed, each in scores.items()})
        row: dict[str, Any] = {"variant": variant.name, "seeds": len(scores)}
        for label in records.ABLATION_ROWS:
            if label in variant.setting:
                spread = variant.setting[label].spread
                row |= {f"{label}: median": spread.median, f"{label}: deviation": spread.deviation}
        if scores:
            table = [*scores.values()]
            row |= {
                "score": statistics.interquartile_mean(table),
                **statistics.interquartile_mean_interval(table).columns("score_"),
            }
        if difference := paired_difference(mine, reference):
            row |= {"difference": difference.mean, **difference.mean_interval.columns("difference_")}
        reference = reference or mine
        rows.append(row)
    return rows


def _scores(variant: Reproduction) -> dict[int, list[float]]:
    """Return the win rates in the ablation's rows of every seed that has all of them."""
    rates = [
        variant.setting[label].spread.by_seed if label in variant.setting else {} for label in records.ABLATION_ROWS
    ]
    return {seed: [by_seed[seed] for by_seed in rates] for seed in sorted(set.intersection(*map(set, rates)))}


_SHARE = "share of "
#: What a description holds for programs, or is shown session by session.
_OF_THE_FILE = ("format", "format_version", "sessions")


def _measures(item: Reproduction) -> dict[str, SeedValues]:
    """Return episode lengths, returns and what is derived from them."""
    derived = {
        "dodge seconds, trained over random": records.dodge_ratio(item),
        "end-to-end seconds, end over beginning of training": records.baseline_growth(item),
    }
    derived |= {
        f"{skill}: share of the scripted gain over random": records.gain_share(item, skill)
        for skill in records.GAIN_SHARES
    }
    measured = {name: spread for name, spread in item.measure.items() if _SHARE not in name}
    return measured | {name: spread for name, spread in derived.items() if spread}


def _actions(item: Reproduction) -> dict[str, SeedValues]:
    """Return how often the end-to-end agent chose each action, in percent, the most frequent first."""
    shares = [(name, spread) for name, spread in item.measure.items() if _SHARE in name]
    return {
        name.removeprefix(_SHARE): SeedValues({seed: 100.0 * share for seed, share in spread.by_seed.items()})
        for name, spread in sorted(shares, key=lambda item: -item[1].median)
    }


def _others(item: Reproduction) -> list[SettingRates]:
    """Return the settings that the paper lacks: further rows and the scripted references."""
    return [setting for setting in item.settings if setting.part not in TABLE_1_PARTS]


def _origin(reproduction: Reproduction) -> str:
    """Return seeds, plan, versions, machine and wall time as recorded; a later session what changed since the last."""
    facts = {name: value for name, value in reproduction.description.items() if name not in _OF_THE_FILE}
    rows = [("seeds done", ", ".join(map(str, reproduction.seeds))), *_flat(facts)]
    before: Row = {}
    for index, session in enumerate(reproduction.description.get("sessions", ()), 1):
        changed = {name: value for name, value in session.items() if value != before.get(name)}
        rows += _flat(changed, f"session {index} ")
        before = session
    return markdown_table(("what", "value"), rows)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{prefix}{name}".replace("_", " "), text


def _paper_cell(percent: float | None) -> str:
    """Return the paper's win rate, the count that fits it, and its Wilson and exact intervals."""
    if percent is None:
        return ""
    paper = records.paper_rate(percent)
    intervals = paper.interval, statistics.clopper_pearson_interval(paper.wins, paper.episodes)
    wilson, exact = (f"{number(100.0 * low)} to {number(100.0 * high)}" for low, high in intervals)
    return f"{percent:.1f} ({paper.wins}/{paper.episodes}; Wilson {wilson}; exact {exact})"


#: What the template shows values by.
_FILTERS: Mapping[str, Callable[..., Any]] = {
    **SEED_FILTERS,
    "of": lambda rows, item: [row for row in rows if row["reproduction"] == item.name],
    "measures": _measures,
    "actions": _actions,
    "others": _others,
    "origin": _origin,
    "paper": _paper_cell,
    "verdict": yes_no,
}


REPORT = "report.md"


def write_report(
    folders: Sequence[Path], out: Path, variants: Sequence[Path] = (), earlier: Sequence[Path] = ()
) -> Path:
    """Write the report of one or several reproductions and return its Markdown file.

    Beside `report.md` lie `report.json`, `tables/*.parquet`, `figures/*.png` and `tensorboard/`; each is written
    whole, the Markdown last. `variants` become the rows of the ablation table, the first being the reference;
    `earlier` are folders of reports on other seeds to compare with, pooled.
    Whatever was not recorded is left out.

    Raises:
        SoulsGraphError: if a folder holds no records, or some that are damaged, or shares a seed with `earlier`.
        WriteError: if the place cannot be written.
    """
    reproductions, ablated = load_reproductions(folders), load_reproductions(variants)
    tables = report_tables(reproductions, ablated, load_earlier(earlier))
    kept = {name: rows for name, rows in tables.items() if rows}
    report = ReportFolder(out)
    pictures = _write_figures(reproductions, report)
    for name, rows in kept.items():
        report.add_table(name, rows)
    described = {
        kind: {item.name: {"seeds": item.seeds, **item.description} for item in items}
        for kind, items in (("reproductions", reproductions), ("variants", ablated))
    }
    report.end(finite({**described, "tables": kept, "figures": pictures}))
    names = {item.name for item in reproductions}
    made = (*reproductions, *(item for item in ablated if item.name not in names))
    text = render(
        Path(__file__).with_name("report.md.jinja"),
        _FILTERS,
        reproductions=reproductions,
        tables=tables,
        table_1=TABLE_1,
        row_ranges=records.ROW_RANGES,
        ablation_rows=records.ABLATION_ROWS,
        beyond_paper=records.BEYOND_PAPER,
        significance=SIGNIFICANCE,
        pictures=pictures,
        made=made,
    )
    write_text(out / REPORT, text)
    return out / REPORT


def _write_figures(reproductions: Sequence[Reproduction], report: ReportFolder) -> dict[str, str]:
    """Write every figure as PNG and for TensorBoard; return their titles by file name."""
    drawn = {"table-1": ("Win rates of every seed beside the paper's", figures.draw_win_rates(reproductions))}
    drawers = {
        "figures-2-3": ("Return over steps of the five skills", figures.draw_skill_returns),
        "figure-5": ("Return and episode length of the end-to-end baseline", figures.draw_baseline),
        "figure-6": ("Dodge's episode length beside random dodging", figures.draw_dodge_lengths),
    }
    for item in reproductions:
        slug = re.sub(r"[^a-z0-9]+", "-", item.name.lower()).strip("-")
        drawn |= {f"{name}-{slug}": (f"{title}, {item.title}", draw(item)) for name, (title, draw) in drawers.items()}
    # Imported here: it takes a second.
    from torch.utils.tensorboard.writer import SummaryWriter

    titles = {}
    with temporary_folder("soulsgraph-events-") as folder:
        events = folder / "events"
        with SummaryWriter(str(events)) as board:
            for name, (title, figure) in drawn.items():
                if figure:
                    content = png_of(figure)
                    report.add_picture(name, content)
                    image = np.asarray(Image.open(BytesIO(content)).convert("RGB"))
                    board.add_image(name, image, dataformats="HWC")
                    titles[f"{name}.png"] = title
        report.add_events(events)
    return titles
