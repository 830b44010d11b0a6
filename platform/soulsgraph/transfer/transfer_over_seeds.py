"""The effect of a shift on each skill, and whether the controls are recognised, over several training seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soulsgraph.intervals import clopper_pearson_interval
from soulsgraph.reports.seed_statistics import Spread
from soulsgraph.transfer.controls import ControlResult
from soulsgraph.transfer.over_seeds import Records, SeedsTable, interval_fields, spread_fields
from soulsgraph.transfer.report import TransferReport

_SETTING = ("domain", "replaced", "stand_in")


def controls_over_seeds(results: Mapping[int, Sequence[ControlResult]]) -> SeedsTable:
    """Count, for each control, the seeds whose recommendation is right, with the exact interval of their share."""
    by_seed = [{"seed": seed, **result.row()} for seed, found in results.items() for result in found]
    keys = ("control",)
    summary = [
        {**dict(zip(keys, setting, strict=True)), "expected": rows[0]["expected"], **_share("right", rows)}
        for setting, rows in _settings(by_seed, keys).items()
    ]
    return SeedsTable("Controls of the recommendation, right or wrong", keys, summary, by_seed)


def recommendations_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Count, for each skill, the seeds that it is recommended to adapt for."""
    by_seed = [
        {
            "seed": seed,
            "skill": skill,
            "found": "adapt" if verdict.adapt else "keep",
            "adapt": verdict.adapt,
            "effect_kept_percent": 100.0 * report.measures.evidence[skill].effect.kept,
            "changed_decisions_percent": 100.0 * verdict.changed_decisions,
            "input_energy": report.measures.figures[skill].input_energy,
            "reason": verdict.reason,
        }
        for seed, report in reports.items()
        for skill, verdict in report.verdicts.items()
    ]
    figures = ("effect_kept_percent", "changed_decisions_percent", "input_energy")
    summary = []
    for (skill,), rows in _settings(by_seed, ("skill",)).items():
        spreads = (spread_fields(name, Spread({row["seed"]: row[name] for row in rows})) for name in figures)
        summary.append(
            {"skill": skill, **_share("adapt", rows)} | {k: v for spread in spreads for k, v in spread.items()}
        )
    asked = next(iter(reports.values())).question
    return SeedsTable(f"Recommended, {asked.home} -> {asked.scenario}", ("skill",), summary, by_seed)


def win_rates_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Return the whole agent's win rates in both domains with each skill replaced, in percent."""
    by_seed = [{"seed": seed, **row} for seed, report in reports.items() for row in report.to_dict()["win_rates"]]
    summary = [
        {**dict(zip(_SETTING, setting, strict=True)), "seeds": len(rows)}
        | spread_fields("win_percent", Spread({row["seed"]: 100.0 * row["rate"] for row in rows}))
        for setting, rows in _settings(by_seed, _SETTING).items()
    ]
    return SeedsTable("Win rates with each skill replaced", _SETTING, summary, by_seed)


def _settings(by_seed: Records, keys: Sequence[str]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    settings: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in by_seed:
        settings.setdefault(tuple(row[key] for key in keys), []).append(row)
    return settings


def _share(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the seeds for which something holds, with the exact interval of their share in percent."""
    held = sum(bool(row[name]) for row in rows)
    interval = clopper_pearson_interval(held, len(rows)).scaled(100.0)
    percent = {f"{name}_percent": 100.0 * held / len(rows), **interval_fields(f"{name}_percent", interval)}
    return {f"seeds_{name}": f"{held} of {len(rows)}", **percent}
