"""The parts of a reproduction report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from soulsgraph.evaluate import TABLE_1
from soulsgraph.paper.bands import (
    BEYOND_PAPER,
    GAIN_SHARES,
    ROW_BANDS,
    baseline_growth,
    dodge_ratio,
    gain_share,
    paper_rate,
    verdicts_of,
)
from soulsgraph.paper.records import TABLE_1_PARTS, Reproduction
from soulsgraph.paper.report_tables import ABLATION_ROWS, ablation_rows, comparison_rows, contrast_rows
from soulsgraph.statistics import Interval, SeedRate, SettingRates, Spread
from soulsgraph.tables import markdown_table, number, with_interval, yes_no

_SHARE = "share of "
#: What a description holds for programs, or is shown session by session.
_OF_THE_FILE = ("format", "version", "sessions")
_SPREAD_HEADINGS = ("median", "mean (t interval)", "interquartile mean (bootstrap)", "deviation (chi-square)")


def table_1(reproduction: Reproduction) -> str:
    """Return Table 1 of one reproduction: figures over seeds, then every seed with its counts."""
    settings = [reproduction.setting[row.label] for row in TABLE_1 if row.label in reproduction.setting]
    if not settings:
        return ""
    headings = ("row", "paper", "seeds", *_SPREAD_HEADINGS, "aim", "median is")
    rows = [
        (
            setting.label,
            _paper_cell(setting.paper_percent),
            str(len(setting.seeds)),
            *_spread_cells(setting.spread),
            *_aim(reproduction, setting),
        )
        for setting in settings
    ]
    title = f"### Table 1, {reproduction.title}: win rates in %, {reproduction.seeds_told}"
    return "\n\n".join([title, markdown_table(headings, rows), "Each seed:", _seed_table(settings)])


def beside_each_other(reproductions: Sequence[Reproduction]) -> str:
    """Return the reproductions as columns, and each further one's difference from the first, paired by seed."""
    if len(reproductions) < 2:
        return ""
    rows = [
        (row.label, _paper_cell(row.paper_percent), *(_rate_cell(item, row.label) for item in reproductions))
        for row in TABLE_1
    ]
    medians = markdown_table(("row", "paper", *(item.title for item in reproductions)), rows)
    headings = ("row", "difference", "points (t interval)", "seeds above / below", "t intervals of the means")
    differences = [
        (
            row["label"],
            f"{row['reproduction']} - {row['from']}",
            *_difference_cells(row),
            {True: "overlap", False: "**apart**", None: ""}[row["overlap"]],
        )
        for row in comparison_rows(reproductions)
    ]
    return "\n\n".join(
        [
            "## Beside each other",
            "Win rates in %: median over seeds; mean (t interval).",
            medians,
            "Differences, paired by seed:",
            markdown_table(headings, differences),
        ]
    )


def outside(reproductions: Sequence[Reproduction]) -> str:
    """List everything that lies outside its expected range, one line per reproduction."""
    lines = []
    for item in reproductions:
        missed = [verdict for verdict in verdicts_of(item) if verdict.inside is False]
        named = "; ".join(f"{v.subject} ({v.found} instead of {v.aim})" for v in missed)
        lines.append(f"- {item.title}: {named or 'nothing'}")
    return "\n".join(["Outside the expected range:", "", *lines])


def aims(reproduction: Reproduction) -> str:
    """Return every expected range of the preset with its verdict."""
    rows = [
        (verdict.subject, verdict.aim, verdict.found, yes_no(verdict.inside)) for verdict in verdicts_of(reproduction)
    ]
    return f"### Aims, {reproduction.title}\n\n{markdown_table(('aim', 'expected', 'found', 'verdict'), rows)}"


def contrasts(reproduction: Reproduction) -> str:
    """Return the differences between rows, paired by seed."""
    rows = [
        (f"{row['first']} - {row['second']}", *_difference_cells(row), number(row["median"]))
        for row in contrast_rows([reproduction])
    ]
    headings = ("difference", "mean points (t interval)", "seeds above / below", "median points")
    table = markdown_table(headings, rows)
    return f"### Differences between rows, {reproduction.title}, paired by seed\n\n{table}" if rows else ""


def measures(reproduction: Reproduction) -> str:
    """Return episode lengths, returns and what is derived from them, each seed shown."""
    spreads = {name: spread for name, spread in reproduction.measure.items() if _SHARE not in name}
    derived = {
        "dodge seconds, trained over random": dodge_ratio(reproduction),
        "end-to-end seconds, end over beginning of training": baseline_growth(reproduction),
    }
    derived |= {
        f"{skill}: share of the scripted gain over random": gain_share(reproduction, skill) for skill in GAIN_SHARES
    }
    spreads |= {name: spread for name, spread in derived.items() if spread}
    return _measure_table(f"### Measures, {reproduction.title}", spreads) if spreads else ""


def end_to_end(reproduction: Reproduction) -> str:
    """Return how often the end-to-end agent chose each action, in percent of its decisions."""
    shares = {name: spread for name, spread in reproduction.measure.items() if _SHARE in name}
    ordered = sorted(shares, key=lambda name: -shares[name].median)
    percent = {
        name.removeprefix(_SHARE): Spread({seed: 100.0 * share for seed, share in shares[name].by_seed.items()})
        for name in ordered
    }
    title = f"### What the end-to-end agent does, {reproduction.title}: % of its greedy decisions"
    return _measure_table(title, percent, "action") if percent else ""


def other_settings(reproduction: Reproduction) -> str:
    """Return the settings that the paper lacks: further rows and the scripted references."""
    others = [setting for setting in reproduction.settings if setting.part not in TABLE_1_PARTS]
    rows = [
        (f"{setting.label} ({setting.scenario}, {setting.start})", *_spread_cells(setting.spread), _counts(setting))
        for setting in others
    ]
    headings = ("setting", *_SPREAD_HEADINGS, "each seed")
    title = f"### Other settings, {reproduction.title}: win rates in %"
    return f"{title}\n\n{markdown_table(headings, rows)}" if rows else ""


def ablation(variants: Sequence[Reproduction]) -> str:
    """Return the ablation table, a row a variant; the first is the one that the others are compared with."""
    if not variants:
        return ""
    headings = ("variant", "seeds", *ABLATION_ROWS, "interquartile mean of all", "difference from the first")
    rows = [
        (
            row["variant"],
            str(row["seeds"]),
            *(_median_and_deviation(row, label) for label in ABLATION_ROWS),
            _interval_cell(row, "score", "score_low", "score_high"),
            _interval_cell(row, "difference", "difference_low", "difference_high"),
        )
        for row in ablation_rows(variants)
    ]
    note = "Win rates in %: median over seeds (standard deviation); intervals are 95 %."
    return "\n\n".join(["## Ablation", note, markdown_table(headings, rows)])


def description(reproduction: Reproduction) -> str:
    """Return seeds, plan, versions, machine and wall time as recorded; a later session what changed since the last."""
    facts = {name: value for name, value in reproduction.description.items() if name not in _OF_THE_FILE}
    rows = [("seeds done", ", ".join(map(str, reproduction.seeds))), *_flat(facts)]
    before: Mapping[str, Any] = {}
    for index, session in enumerate(reproduction.description.get("sessions", ()), 1):
        changed = {name: value for name, value in session.items() if value != before.get(name)}
        rows += _flat(changed, f"session {index} ")
        before = session
    return f"### How {reproduction.title} was made\n\n{markdown_table(('what', 'value'), rows)}"


def _paper_cell(percent: float | None) -> str:
    if percent is None:
        return ""
    paper = paper_rate(percent)
    wilson, exact = (f"{number(low)} to {number(high)}" for low, high in (paper.wilson, paper.clopper_pearson))
    return f"{percent:.1f} ({paper.wins}/{paper.episodes}; Wilson {wilson}; exact {exact})"


def _spread_cells(spread: Spread, digits: int = 1) -> tuple[str, ...]:
    return (
        f"**{number(spread.median, digits)}**",
        with_interval(spread.mean, spread.mean_interval, digits),
        with_interval(spread.interquartile_mean, spread.interquartile_mean_interval, digits),
        with_interval(spread.deviation, spread.deviation_interval, digits),
    )


def _aim(reproduction: Reproduction, setting: SettingRates) -> tuple[str, str]:
    if reproduction.preset in BEYOND_PAPER:
        return ("", "")
    band = ROW_BANDS[setting.label]
    return band.text(), yes_no(band.holds(setting.spread.median))


def _seed_table(settings: Sequence[SettingRates]) -> str:
    seeds = sorted({rate.seed for setting in settings for rate in setting.seeds})
    rows = []
    for setting in settings:
        rates = {rate.seed: rate for rate in setting.seeds}
        rows.append((setting.label, *(_seed_cell(rates.get(seed)) for seed in seeds)))
    return markdown_table(("row", *(f"seed {seed}" for seed in seeds)), rows)


def _seed_cell(rate: SeedRate | None) -> str:
    if rate is None:
        return ""
    low, high = rate.interval
    return f"{rate.wins}/{rate.episodes}<br>{rate.percent:.1f}<br>({low:.1f} to {high:.1f})"


def _counts(setting: SettingRates) -> str:
    return ", ".join(f"{rate.wins}/{rate.episodes}" for rate in setting.seeds)


def _rate_cell(reproduction: Reproduction, label: str) -> str:
    if label not in reproduction.setting:
        return ""
    spread = reproduction.setting[label].spread
    return f"**{number(spread.median)}**; {with_interval(spread.mean, spread.mean_interval)}"


def _difference_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    if not row["seeds"]:
        return ("no shared seed", "")
    counts = f"{row['seeds_above']} / {row['seeds_below']} of {row['seeds']}"
    return (_interval_cell(row, "mean", "mean_low", "mean_high"), counts)


def _interval_cell(row: Mapping[str, Any], value: str, low: str, high: str) -> str:
    return with_interval(row[value], Interval(row[low], row[high])) if value in row else ""


def _median_and_deviation(row: Mapping[str, Any], label: str) -> str:
    if f"{label}: median" not in row:
        return ""
    return f"{number(row[f'{label}: median'])} ({number(row[f'{label}: deviation'])})"


def _measure_table(title: str, spreads: Mapping[str, Spread], what: str = "measure") -> str:
    rows = []
    for name, spread in spreads.items():
        digits = 2 if abs(spread.median) < 10.0 else 1
        each = ", ".join(number(value, digits) for value in spread.values)
        rows.append((name, *_spread_cells(spread, digits), each))
    return f"{title}\n\n{markdown_table((what, *_SPREAD_HEADINGS, 'each seed'), rows)}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{prefix}{name}".replace("_", " "), text
