"""The parts of a reproduction report: tables of plain values for machines, and what its Markdown shows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from soulsgraph.paper import expected_ranges as ranges
from soulsgraph.paper.records import TABLE_1_PARTS, Records, Reproduction
from soulsgraph.results import statistics
from soulsgraph.results.tables import markdown_table, number, with_interval, yes_no
from soulsgraph.runs.evaluate import TABLE_1

_SHARE = "share of "
#: What a description holds for programs, or is shown session by session.
_OF_THE_FILE = ("format", "version", "sessions")
_SPREAD_HEADINGS = ("median", "mean (t interval)", "interquartile mean (bootstrap)", "deviation (chi-square)")


def report_tables(reproductions: Sequence[Reproduction], variants: Sequence[Reproduction]) -> dict[str, Records]:
    """Return the tables for machines by name, those without a row left out; win rates are in percent.

    Every setting with its figures over seeds and the paper's with its intervals; every seed with its own interval;
    every expected range with the value found; measures; differences within and between reproductions; the ablation.
    """
    settings = [(item.name, _place(setting), setting) for item in reproductions for setting in item.settings]
    tables: dict[str, Records] = {
        "settings": [
            {"reproduction": name, **place, **_paper(setting), **setting.spread.to_dict()}
            for name, place, setting in settings
        ],
        "seeds": [
            {"reproduction": name, **place, "seed": seed, **asdict(count), "percent": count.percent}
            | count.wilson.columns()
            for name, place, setting in settings
            for seed, count in setting.seeds.items()
        ],
        "expected_ranges": [
            {"reproduction": item.name, **asdict(verdict)}
            for item in reproductions
            for verdict in ranges.verdicts_of(item)
        ],
        "measures": [
            {"reproduction": item.name, "measure": name, **spread.to_dict()}
            for item in reproductions
            for name, spread in item.measure.items()
        ],
        "differences": [row for item in reproductions for row in _contrast_rows(item)],
        "comparison": _comparison_rows(reproductions),
        "ablation": _ablation_rows(variants),
    }
    return {name: rows for name, rows in tables.items() if rows}


def _place(setting: statistics.SettingRates) -> dict[str, str]:
    return {"label": setting.label, "part": setting.part, "scenario": setting.scenario, "start": setting.start}


def _paper(setting: statistics.SettingRates) -> Mapping[str, float | None]:
    if setting.paper_percent is None:
        return {"paper_percent": None}
    paper = ranges.paper_rate(setting.paper_percent)
    counts = {"paper_percent": setting.paper_percent, "paper_wins": paper.wins, "paper_episodes": paper.episodes}
    return counts | paper.wilson.columns("paper_wilson_") | paper.clopper_pearson.columns("paper_exact_")


def _difference(first: statistics.Spread, second: statistics.Spread) -> dict[str, Any]:
    """Return the figures of first - second in points, paired by seed; nothing but their number for no shared seed."""
    difference = statistics.paired_difference(first, second)
    if difference is None:
        return {"seeds": 0}
    above, below = (int((sign * difference.values > 0.0).sum()) for sign in (1, -1))
    return {**difference.to_dict(), "seeds_above": above, "seeds_below": below}


def _contrast_rows(reproduction: Reproduction) -> Records:
    """Return the differences between rows within a reproduction."""
    spreads = {label: setting.spread for label, setting in reproduction.setting.items()}
    rows = [
        {"reproduction": reproduction.name, "first": first, "second": second}
        | _difference(spreads[first], spreads[second])
        for first, second in ranges.CONTRASTS
        if first in spreads and second in spreads
    ]
    return [row for row in rows if row["seeds"]]


def _comparison_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return the differences of every further reproduction from the first.

    `overlap` is whether the t intervals of the two means overlap, None if one has a single seed.
    """
    rows: Records = []
    for item in reproductions[1:]:
        reference = reproductions[0]
        for label in (label for label in item.setting if label in reference.setting):
            mine, first = item.setting[label].spread, reference.setting[label].spread
            several = min(len(mine.by_seed), len(first.by_seed)) > 1
            overlap = mine.mean_interval.overlaps(first.mean_interval) if several else None
            names = {"reproduction": item.name, "from": reference.name, "label": label, "overlap": overlap}
            rows.append({**names, **_difference(mine, first)})
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
        mine = statistics.Spread({seed: float(np.mean(each)) for seed, each in scores.items()})
        row: dict[str, Any] = {"variant": variant.name, "seeds": len(scores)}
        for label in ranges.ABLATION_ROWS:
            if label in variant.setting:
                spread = variant.setting[label].spread
                row |= {f"{label}: median": spread.median, f"{label}: deviation": spread.deviation}
        if scores:
            table = [*scores.values()]
            row |= {
                "score": statistics.interquartile_mean(table),
                **statistics.interquartile_mean_interval(table).columns("score_"),
            }
        if difference := statistics.paired_difference(mine, reference):
            row |= {"difference": difference.mean, **difference.mean_interval.columns("difference_")}
        reference = reference or mine
        rows.append(row)
    return rows


def _scores(variant: Reproduction) -> dict[int, list[float]]:
    """Return the win rates in the ablation's rows of every seed that has all of them."""
    rates = [
        variant.setting[label].spread.by_seed if label in variant.setting else {} for label in ranges.ABLATION_ROWS
    ]
    return {seed: [by_seed[seed] for by_seed in rates] for seed in sorted(set.intersection(*map(set, rates)))}


def table_1(reproduction: Reproduction) -> str:
    """Return Table 1 of one reproduction: figures over seeds, then every seed with its counts."""
    headings = ("row", "paper", "seeds", *_SPREAD_HEADINGS, "expected", "median is")
    rows = []
    for label, setting in reproduction.setting.items():
        paper, seeds_done = _paper_cell(setting.paper_percent), str(len(setting.seeds))
        rows.append((label, paper, seeds_done, *_spread_cells(setting.spread), *_expected_cells(reproduction, setting)))
    counts = {label: setting.seeds for label, setting in reproduction.setting.items()}
    seeds = sorted(set().union(*counts.values()))
    each = [(label, *(_seed_cell(by_seed.get(seed)) for seed in seeds)) for label, by_seed in counts.items()]
    title = f"### Table 1, {reproduction.title}: win rates in %, {reproduction.seeds_told}"
    section = _section(title, headings, rows)
    return section and "\n\n".join([section, _section("Each seed:", ("row", *(f"seed {s}" for s in seeds)), each)])


def beside_each_other(reproductions: Sequence[Reproduction]) -> str:
    """Return the reproductions as columns, and each further one's difference from the first, paired by seed."""
    if len(reproductions) < 2:
        return ""
    rows = [
        (row.label, _paper_cell(row.paper_percent), *(_rate_cell(item, row.label) for item in reproductions))
        for row in TABLE_1
    ]
    headings = ("row", "difference", "points (t interval)", "seeds above / below", "t intervals of the means")
    differences = [
        (
            row["label"],
            f"{row['reproduction']} - {row['from']}",
            *_difference_cells(row),
            {True: "overlap", False: "**apart**", None: ""}[row["overlap"]],
        )
        for row in _comparison_rows(reproductions)
    ]
    title = "## Beside each other\n\nWin rates in %: median over seeds; mean (t interval)."
    medians = _section(title, ("row", "paper", *(item.title for item in reproductions)), rows)
    return f"{medians}\n\nDifferences, paired by seed:\n\n{markdown_table(headings, differences)}"


def outside(reproductions: Sequence[Reproduction]) -> str:
    """List everything that lies outside its expected range, one line per reproduction."""
    lines = []
    for item in reproductions:
        missed = [verdict for verdict in ranges.verdicts_of(item) if verdict.inside is False]
        named = "; ".join(f"{v.subject} ({v.found} instead of {v.expected})" for v in missed)
        lines.append(f"- {item.title}: {named or 'nothing'}")
    return "\n".join(["Outside the expected range:", "", *lines])


def expected_ranges(reproduction: Reproduction) -> str:
    """Return every expected range of the preset with its verdict."""
    rows = [(item.subject, item.expected, item.found, yes_no(item.inside)) for item in ranges.verdicts_of(reproduction)]
    return (
        f"### Expected ranges, {reproduction.title}\n\n{markdown_table(('of', 'expected', 'found', 'verdict'), rows)}"
    )


def contrasts(reproduction: Reproduction) -> str:
    """Return the differences between rows, paired by seed."""
    rows = [
        (f"{row['first']} - {row['second']}", *_difference_cells(row), number(row["median"]))
        for row in _contrast_rows(reproduction)
    ]
    headings = ("difference", "mean points (t interval)", "seeds above / below", "median points")
    return _section(f"### Differences between rows, {reproduction.title}, paired by seed", headings, rows)


def measures(reproduction: Reproduction) -> str:
    """Return episode lengths, returns and what is derived from them, each seed shown."""
    measured = {name: spread for name, spread in reproduction.measure.items() if _SHARE not in name}
    derived = {
        "dodge seconds, trained over random": ranges.dodge_ratio(reproduction),
        "end-to-end seconds, end over beginning of training": ranges.baseline_growth(reproduction),
    }
    derived |= {
        f"{skill}: share of the scripted gain over random": ranges.gain_share(reproduction, skill)
        for skill in ranges.GAIN_SHARES
    }
    return _measure_table(f"### Measures, {reproduction.title}", measured | derived)


def end_to_end(reproduction: Reproduction) -> str:
    """Return how often the end-to-end agent chose each action, in percent of its decisions."""
    shares = [(name, spread) for name, spread in reproduction.measure.items() if _SHARE in name]
    percent = {
        name.removeprefix(_SHARE): statistics.Spread({seed: 100.0 * share for seed, share in spread.by_seed.items()})
        for name, spread in sorted(shares, key=lambda item: -item[1].median)
    }
    title = f"### What the end-to-end agent does, {reproduction.title}: % of its greedy decisions"
    return _measure_table(title, percent, "action")


def other_settings(reproduction: Reproduction) -> str:
    """Return the settings that the paper lacks: further rows and the scripted references."""
    rows = [
        (
            f"{setting.label} ({setting.scenario}, {setting.start})",
            *_spread_cells(setting.spread),
            ", ".join(f"{count.wins}/{count.episodes}" for count in setting.seeds.values()),
        )
        for setting in reproduction.settings
        if setting.part not in TABLE_1_PARTS
    ]
    title = f"### Other settings, {reproduction.title}: win rates in %"
    return _section(title, ("setting", *_SPREAD_HEADINGS, "each seed"), rows)


def ablation(variants: Sequence[Reproduction]) -> str:
    """Return the ablation table, a row a variant; the first is the one that the others are compared with."""
    headings = ("variant", "seeds", *ranges.ABLATION_ROWS, "interquartile mean of all", "difference from the first")
    rows = [
        (
            row["variant"],
            str(row["seeds"]),
            *(_median_and_deviation(row, label) for label in ranges.ABLATION_ROWS),
            _interval_cell(row, "score"),
            _interval_cell(row, "difference"),
        )
        for row in _ablation_rows(variants)
    ]
    note = "Win rates in %: median over seeds (standard deviation); intervals are 95 %."
    return _section(f"## Ablation\n\n{note}", headings, rows)


def description(reproduction: Reproduction) -> str:
    """Return seeds, plan, versions, machine and wall time as recorded; a later session what changed since the last."""
    facts = {name: value for name, value in reproduction.description.items() if name not in _OF_THE_FILE}
    rows = [("seeds done", ", ".join(map(str, reproduction.seeds))), *_flat(facts)]
    before: Mapping[str, Any] = {}
    for index, session in enumerate(reproduction.description.get("sessions", ()), 1):
        changed = {name: value for name, value in session.items() if value != before.get(name)}
        rows += _flat(changed, f"session {index} ")
        before = session
    return _section(f"### How {reproduction.title} was made", ("what", "value"), rows)


def _section(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table below its title; empty without a row."""
    return f"{title}\n\n{markdown_table(headings, rows)}" if rows else ""


def _paper_cell(percent: float | None) -> str:
    if percent is None:
        return ""
    paper = ranges.paper_rate(percent)
    wilson, exact = (f"{number(low)} to {number(high)}" for low, high in (paper.wilson, paper.clopper_pearson))
    return f"{percent:.1f} ({paper.wins}/{paper.episodes}; Wilson {wilson}; exact {exact})"


def _spread_cells(spread: statistics.Spread, digits: int = 1) -> tuple[str, ...]:
    figures = spread.to_dict()
    cells = (_interval_cell(figures, name, digits) for name in ("mean", "interquartile_mean", "deviation"))
    return (f"**{number(spread.median, digits)}**", *cells)


def _expected_cells(reproduction: Reproduction, setting: statistics.SettingRates) -> tuple[str, str]:
    if reproduction.preset in ranges.BEYOND_PAPER:
        return ("", "")
    expected = ranges.ROW_RANGES[setting.label]
    return expected.text(), yes_no(expected.holds(setting.spread.median))


def _seed_cell(count: statistics.WinCount | None) -> str:
    if count is None:
        return ""
    low, high = count.wilson
    return f"{count.wins}/{count.episodes}<br>{count.percent:.1f}<br>({low:.1f} to {high:.1f})"


def _rate_cell(reproduction: Reproduction, label: str) -> str:
    if label not in reproduction.setting:
        return ""
    spread = reproduction.setting[label].spread
    return f"**{number(spread.median)}**; {with_interval(spread.mean, spread.mean_interval)}"


def _difference_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    if not row["seeds"]:
        return ("no shared seed", "")
    counts = f"{row['seeds_above']} / {row['seeds_below']} of {row['seeds']}"
    return (_interval_cell(row, "mean"), counts)


def _interval_cell(row: Mapping[str, Any], value: str, digits: int = 1) -> str:
    if value not in row:
        return ""
    return with_interval(row[value], statistics.Interval(row[f"{value}_low"], row[f"{value}_high"]), digits)


def _median_and_deviation(row: Mapping[str, Any], label: str) -> str:
    if f"{label}: median" not in row:
        return ""
    return f"{number(row[f'{label}: median'])} ({number(row[f'{label}: deviation'])})"


def _measure_table(title: str, spreads: Mapping[str, statistics.Spread | None], what: str = "measure") -> str:
    rows = []
    for name, spread in spreads.items():
        if spread:
            digits = 2 if abs(spread.median) < 10.0 else 1
            each = ", ".join(number(value, digits) for value in spread.values)
            rows.append((name, *_spread_cells(spread, digits), each))
    return _section(title, (what, *_SPREAD_HEADINGS, "each seed"), rows)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{prefix}{name}".replace("_", " "), text
