"""Several runs, one a training seed: each evaluated alone, compared within its seed, episodes never pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from soulsgraph.results import seeds
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer.recovery import JOINTLY, NOTHING, RECOMMENDED, RecoveryTarget
from soulsgraph.transfer.report import TransferReport
from soulsgraph.transfer.retention import Retention
from soulsgraph_envs.core.errors import SoulsGraphError


def open_seeds(folders: Sequence[Path]) -> dict[int, RunFolder]:
    """Open runs that differ in nothing but their seed, by seed in the order given.

    Raises:
        SoulsGraphError: if none is given, one is no run, two have the same seed, or their plans differ otherwise.
    """
    if not folders:
        raise SoulsGraphError("RUN: expected one or more run folders, found none; name one.")
    runs: dict[int, RunFolder] = {}
    for folder in folders:
        run = RunFolder.open(folder)
        first = next(iter(runs.values()), run)
        if run.plan.seed in runs:
            raise SoulsGraphError(
                f"{folder}: expected a run of another seed than {runs[run.plan.seed].path}, found seed "
                f"{run.plan.seed} again; name each seed once."
            )
        if replace(run.plan, seed=first.plan.seed) != first.plan:
            raise SoulsGraphError(
                f"{folder}: expected the plan of {first.path} but for its seed, found another; "
                "compare runs of one plan, others by a call of their own."
            )
        runs[run.plan.seed] = run
    return runs


def _check_same(values: Mapping[int, str], asked: str, remedy: str) -> None:
    """Refuse seeds that differ in a value; `asked` begins the error and has the place of the value."""
    (first, expected), *others = values.items()
    for seed, value in others:
        if value != expected:
            raise SoulsGraphError(f"{asked.format(expected, first)}, found {value} for seed {seed}; {remedy}.")


def check_chains(chains: Mapping[int, tuple[str, ...]]) -> None:
    """Make sure that every seed went through the same domains.

    Raises:
        SoulsGraphError: naming two seeds and their chains.
    """
    _check_same(
        {seed: " -> ".join(chain) for seed, chain in chains.items()},
        "retention: expected every seed to go through {} as seed {} did",
        "adapt it in the same order or leave it to a call of its own",
    )


def check_sources(sources: Mapping[int, str]) -> None:
    """Make sure that every seed continues the versions of the same scenario.

    Raises:
        SoulsGraphError: naming two seeds and their scenarios.
    """
    _check_same(
        sources,
        "recovery: expected every seed to continue the versions of {} as seed {} does",
        "name one of them for all with `home`",
    )


def controls_over_seeds(results: Mapping[int, seeds.Rows]) -> seeds.SeedsTable:
    """Count, for each control that was asked, the seeds whose recommendation is right, with their share's interval."""
    frame = seeds.frame_of(results)
    asked = frame[frame["right"].notna()]
    expected = asked.groupby("control", sort=False)[["expected"]].first()
    return seeds.SeedsTable.of(
        "Controls of the recommendation, right or wrong", asked, expected, seeds.share(asked, ["control"], "right")
    )


def recommendations_over_seeds(reports: Mapping[int, TransferReport]) -> seeds.SeedsTable:
    """Count, for each skill, the seeds that it is recommended to adapt for."""
    results = {
        seed: [
            {
                "skill": skill,
                "found": "adapt" if verdict.adapt else "keep",
                "adapt": verdict.adapt,
                "effect_kept_percent": 100.0 * report.evidence[skill].effect.kept,
                "changed_decisions_percent": 100.0 * verdict.changed_decisions,
                "input_energy": report.figures[skill]["input_energy"],
                "reason": verdict.reason,
            }
            for skill, verdict in report.verdicts.items()
        ]
        for seed, report in reports.items()
    }
    frame, by, asked = seeds.frame_of(results), ["skill"], next(iter(reports.values())).question
    means = ("effect_kept_percent", "changed_decisions_percent", "input_energy")
    parts = (seeds.summary(frame, by, name, {"mean": name}) for name in means)
    return seeds.SeedsTable.of(
        f"Recommended, {asked.home} -> {asked.scenario}", frame, seeds.share(frame, by, "adapt"), *parts
    )


def _win_rates(title: str, by: Sequence[str], results: Mapping[int, seeds.Rows]) -> seeds.SeedsTable:
    frame = seeds.frame_of(results)
    percent = frame.assign(percent=100.0 * frame["rate"])
    return seeds.SeedsTable.of(
        title, frame, seeds.summary(percent, by, "percent", {"seeds": "seeds", "mean": "win_percent"})
    )


def win_rates_over_seeds(reports: Mapping[int, TransferReport]) -> seeds.SeedsTable:
    """Return the whole agent's win rates in both domains with each skill replaced, in percent."""
    results = {seed: report.win_rates for seed, report in reports.items()}
    return _win_rates("Win rates with each skill replaced", ("domain", "replaced", "stand_in"), results)


def recovery_over_seeds(target: RecoveryTarget, results: Mapping[int, seeds.Rows]) -> seeds.SeedsTable:
    """Put the recoveries of several seeds together; `results` are each seed's rows, the first without any step.

    Win rates and gains are in percent and points, gains and differences paired by seed. A seed for which
    nothing was recommended counts in the recommended row as it was before.
    """
    first = JOINTLY if target.kind == JOINTLY else RECOMMENDED
    by_seed = seeds.frame_of({seed: _completed(arms, first) for seed, arms in results.items()})
    # Without steps there is no gain per step.
    per_step = 100.0 * by_seed["gain_per_10000_steps"].astype(float).fillna(0.0)
    arms = by_seed.assign(percent=100.0 * by_seed["rate"], points=100.0 * by_seed["gain"], per_step=per_step)
    best = seeds.seed_values(arms[arms["setting"] == first], "percent")

    def row(label: str, arm: pd.DataFrame) -> dict[str, Any]:
        rates, gains = seeds.seed_values(arm, "percent"), seeds.seed_values(arm, "points")
        columns = {"setting": label, "seeds": len(arm), "steps": round(arm["steps"].mean())}
        columns |= rates.columns({"median": "median_percent", "mean": "win_percent"})
        if label == NOTHING:
            return columns
        columns |= gains.columns({"mean": "gain_points"})
        columns |= seeds.seed_values(arm, "per_step").columns({"mean": "gain_per_10000_steps"})
        columns |= {"seeds_that_gained": f"{(gains.values > 0.0).sum()} of {len(arm)}"}
        ahead = None if label == first else seeds.paired_difference(best, rates)
        return columns | (ahead.columns({"mean": f"{first}_ahead_points"}) if ahead else {})

    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    # What the others are compared with stands before them, even if the first seed had no recommendation.
    places = {NOTHING: 0, first: 1}
    rows = [seeds.plain(row(label, arm)) for label, arm in arms.groupby("setting", sort=False)]
    rows.sort(key=lambda row: places.get(row["setting"], 2))
    return seeds.SeedsTable(title, ("setting",), rows, seeds.records(by_seed))


def _completed(arms: seeds.Rows, first: str) -> seeds.Rows:
    return arms if any(arm["setting"] == first for arm in arms) else [*arms, {**arms[0], "setting": first}]


def chain_rates_over_seeds(chains: Mapping[int, Retention]) -> seeds.SeedsTable:
    """Return the win rate after each domain in each, in percent."""
    results = {seed: retention.rows() for seed, retention in chains.items()}
    return _win_rates("Wins after training on one domain in another", ("after", "domain"), results)


def measures_over_seeds(chains: Mapping[int, Retention]) -> seeds.SeedsTable:
    """Return transfer, forgetting and the change of the old versions; a seed's missing measure is shown as missing."""
    results = {
        seed: [
            {"measure": name, "value": value, "found": "missing" if value is None else f"{value:+.3f}"}
            for name, value in measures_of(retention).items()
        ]
        for seed, retention in chains.items()
    }
    frame = seeds.frame_of(results)
    means = seeds.summary(frame, ["measure"], "value", {"seeds": "seeds", "mean": "mean"})
    return seeds.SeedsTable.of("Transfer and forgetting, as shares of episodes", frame, means)


def measures_of(retention: Retention) -> dict[str, float | None]:
    """Name the measures of one chain; None where one is missing."""
    values = retention.to_dict()
    named: dict[str, float | None] = {
        "zero-shot forward transfer over chance": values["zero_shot_transfer"],
        "backward transfer": values["backward_transfer"],
    }
    named |= {
        f"forward transfer while training in {found.domain}": found.forward_transfer for found in retention.training
    }
    named |= {f"forgetting of {domain}, newest versions": lost for domain, lost in values["forgetting"].items()}
    named |= {f"change of {found.domain}, own versions": found.to_dict()["difference"] for found in retention.kept}
    return named
