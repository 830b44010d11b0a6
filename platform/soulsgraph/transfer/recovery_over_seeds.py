"""What the same steps recover, over several training seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from soulsgraph.reports.seed_statistics import Spread, paired_difference
from soulsgraph.transfer.over_seeds import Records, SeedsTable, spread_fields
from soulsgraph.transfer.recovery import JOINTLY, NOTHING, RECOMMENDED, ArmResult, Target

_KEY = "setting"


def recovery_over_seeds(target: Target, results: Mapping[int, Sequence[ArmResult]]) -> SeedsTable:
    """Put the recoveries of several seeds together; `results` are each seed's, the first without any step.

    Win rates and gains are in percent and points, gains and differences paired by seed. A seed for which
    nothing was recommended counts in the recommended row as it was before.
    """
    first = JOINTLY if target.kind == JOINTLY else RECOMMENDED
    by_seed = [
        {"seed": seed, **row}
        for seed, arms in results.items()
        for row in (arm.to_dict() for arm in _completed(arms, first))
    ]
    labels = dict.fromkeys(row[_KEY] for row in by_seed)
    # What the others are compared with stands before them, even if the first seed had no recommendation.
    ordered = [label for label in (NOTHING, first) if label in labels]
    ordered += [label for label in labels if label not in ordered]
    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    return SeedsTable(title, (_KEY,), [_summary(label, by_seed, first) for label in ordered], by_seed)


def _completed(arms: Sequence[ArmResult], first: str) -> list[ArmResult]:
    if any(arm.label == first for arm in arms):
        return [*arms]
    return [*arms, replace(arms[0], label=first)]


def _summary(label: str, by_seed: Records, first: str) -> dict[str, Any]:
    rates = _spread(by_seed, label, "rate", 100.0)
    ahead = paired_difference(_spread(by_seed, first, "rate", 100.0), rates)
    gains = _spread(by_seed, label, "gain", 100.0)
    summary: dict[str, Any] = {
        _KEY: label,
        "seeds": len(rates.by_seed),
        "steps": round(_spread(by_seed, label, "steps").mean),
        "median_percent": rates.median,
        **spread_fields("win_percent", rates),
    }
    if label == NOTHING:
        return summary
    summary |= spread_fields("gain_points", gains)
    summary |= spread_fields("gain_per_10000_steps", _spread(by_seed, label, "gain_per_10000_steps", 100.0))
    summary["seeds_that_gained"] = f"{sum(gain > 0.0 for gain in gains.values)} of {len(gains.by_seed)}"
    return summary if label == first else summary | spread_fields(f"{first}_ahead_points", ahead)


def _spread(by_seed: Records, label: str, column: str, factor: float = 1.0) -> Spread:
    """Return a column of a setting's rows over seeds; the gain per step of an arm without steps is 0."""
    return Spread({row["seed"]: factor * (row[column] or 0.0) for row in by_seed if row[_KEY] == label})
