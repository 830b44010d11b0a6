"""Tables of a reproduction report as rows of plain values: what machines read, and what its Markdown shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from soulsgraph.evaluate import TABLE_1
from soulsgraph.paper.bands import (
    BOTH,
    DODGE_TRAINED,
    END_TO_END,
    FINE_TUNED,
    HEAL_ATTACK_TRAINED,
    LONG,
    MID,
    NEITHER,
    paper_rate,
    verdicts_of,
)
from soulsgraph.paper.records import Records, Reproduction
from soulsgraph.statistics import (
    SettingRates,
    Spread,
    interquartile_mean,
    interquartile_mean_interval,
    mean_interval,
    paired_difference,
)

#: Pairs of rows whose difference says something, the first minus the second.
CONTRASTS = (
    (BOTH, HEAL_ATTACK_TRAINED),
    (BOTH, DODGE_TRAINED),
    (HEAL_ATTACK_TRAINED, NEITHER),
    (BOTH, END_TO_END),
    (BOTH, MID),
    (MID, LONG),
    (FINE_TUNED, MID),
)
#: Rows that variants of an ablation are compared by.
ABLATION_ROWS = (BOTH, MID, FINE_TUNED)


def setting_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return every setting with its figures over seeds and the paper's with its intervals, all in percent."""
    return [
        {"reproduction": item.name, **_place(setting), **_paper(setting), **setting.spread.to_dict()}
        for item in reproductions
        for setting in item.settings
    ]


def seed_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return every setting of every seed: counts, percentage and the Wilson interval of that one agent."""
    return [
        {
            "reproduction": item.name,
            **_place(setting),
            "seed": rate.seed,
            "wins": rate.wins,
            "episodes": rate.episodes,
            "percent": rate.percent,
            "low": rate.interval.low,
            "high": rate.interval.high,
        }
        for item in reproductions
        for setting in item.settings
        for rate in setting.seeds
    ]


def verdict_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return every expected range with the value found."""
    return [{"reproduction": item.name, **asdict(verdict)} for item in reproductions for verdict in verdicts_of(item)]


def measure_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return every measure with its figures over seeds."""
    return [
        {"reproduction": item.name, "measure": name, **spread.to_dict()}
        for item in reproductions
        for name, spread in item.measure.items()
    ]


def contrast_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return the differences between rows within a reproduction, in points and paired by seed."""
    rows = []
    for item in reproductions:
        for first, second in CONTRASTS:
            if first in item.setting and second in item.setting:
                names = {"reproduction": item.name, "first": first, "second": second}
                rows += _difference(names, item.setting[first].spread, item.setting[second].spread)
    return rows


def comparison_rows(reproductions: Sequence[Reproduction]) -> Records:
    """Return the differences of every further reproduction from the first, in points and paired by seed.

    `overlap` is whether the t intervals of the two means overlap, None if one has a single seed.
    """
    rows = []
    for item in reproductions[1:]:
        for row in TABLE_1:
            if row.label in item.setting and row.label in reproductions[0].setting:
                mine, first = item.setting[row.label].spread, reproductions[0].setting[row.label].spread
                names: dict[str, Any] = {"reproduction": item.name, "from": reproductions[0].name, "label": row.label}
                several = min(len(mine.by_seed), len(first.by_seed)) > 1
                names["overlap"] = mine.mean_interval.overlaps(first.mean_interval) if several else None
                rows += _difference(names, mine, first) or [{**names, "seeds": 0}]
    return rows


def ablation_rows(variants: Sequence[Reproduction]) -> Records:
    """Return each variant's median and deviation in the rows that matter, and one score over all of them.

    The score is the interquartile mean over seeds and rows with its stratified bootstrap interval; its
    difference is that of each seed's mean over the rows from the first variant's, paired by seed.
    """
    rows: Records = []
    reference = _mean_over_rows(variants[0]) if variants else Spread({})
    for variant in variants:
        mine = _mean_over_rows(variant)
        row: dict[str, Any] = {"variant": variant.name, "seeds": len(mine.by_seed)}
        for label in ABLATION_ROWS:
            if label in variant.setting:
                spread = variant.setting[label].spread
                row |= {f"{label}: median": spread.median, f"{label}: deviation": spread.deviation}
        if mine.by_seed:
            scores = np.array([[_percent(variant, label, seed) for label in ABLATION_ROWS] for seed in mine.by_seed])
            low, high = interquartile_mean_interval(scores)
            row |= {"score": interquartile_mean(scores), "score_low": low, "score_high": high}
        difference = paired_difference(mine, reference)
        if difference and variant is not variants[0]:
            low, high = mean_interval(difference.values)
            row |= {"difference": difference.mean, "difference_low": low, "difference_high": high}
        rows.append(row)
    return rows


def _place(setting: SettingRates) -> dict[str, str]:
    return {"label": setting.label, "part": setting.part, "scenario": setting.scenario, "start": setting.start}


def _paper(setting: SettingRates) -> dict[str, float | None]:
    if setting.paper_percent is None:
        return {"paper_percent": None}
    paper = paper_rate(setting.paper_percent)
    return {
        "paper_percent": paper.percent,
        "paper_wins": paper.wins,
        "paper_episodes": paper.episodes,
        "paper_wilson_low": paper.wilson.low,
        "paper_wilson_high": paper.wilson.high,
        "paper_exact_low": paper.clopper_pearson.low,
        "paper_exact_high": paper.clopper_pearson.high,
    }


def _difference(names: dict[str, Any], first: Spread, second: Spread) -> Records:
    difference = paired_difference(first, second)
    if difference is None:
        return []
    above, below = (int((sign * difference.values > 0.0).sum()) for sign in (1, -1))
    return [{**names, **difference.to_dict(), "seeds_above": above, "seeds_below": below}]


def _mean_over_rows(variant: Reproduction) -> Spread:
    if any(label not in variant.setting for label in ABLATION_ROWS):
        return Spread({})
    spreads = [variant.setting[label].spread for label in ABLATION_ROWS]
    shared = set.intersection(*(set(spread.by_seed) for spread in spreads))
    return Spread({seed: float(np.mean([spread.by_seed[seed] for spread in spreads])) for seed in sorted(shared)})


def _percent(variant: Reproduction, label: str, seed: int) -> float:
    return variant.setting[label].spread.by_seed[seed]
