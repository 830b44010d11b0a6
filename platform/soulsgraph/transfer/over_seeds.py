"""Several runs, one a training seed: each evaluated alone, compared within its seed, episodes never pooled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from soulsgraph.results.files import describe_origin
from soulsgraph.results.statistics import Spread, clopper_pearson_interval, paired_difference
from soulsgraph.results.tables import readable_table, seeds_text, text_table, write_rows
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer.recovery import JOINTLY, NOTHING, RECOMMENDED, RecoveryTarget
from soulsgraph.transfer.report import TransferReport
from soulsgraph.transfer.retention import Retention
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_json

Records = Sequence[Mapping[str, Any]]

#: More would not fit beside each other on a line of 80 characters.
_SEEDS_A_TABLE = 5


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


@dataclass(frozen=True)
class SeedsTable:
    """A summary over seeds, one row per setting, and the single seeds, one row per setting and seed.

    `keys` name the columns that identify a setting. A seed's row has its counts (`wins`, `episodes`, `rate`, `low`,
    `high`) or what was `found`.
    """

    title: str
    keys: tuple[str, ...]
    summary: Records
    by_seed: Records

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in order."""
        return tuple(sorted({row["seed"] for row in self.by_seed}))

    def rows(self) -> list[dict[str, Any]]:
        """Return the summary, every seed's point in a column of its own."""
        return [
            {**row, "each_seed": "; ".join(f"{s}: {p}" for s, p in self._points(row).items())} for row in self.summary
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return both tables as plain values for JSON."""
        return {"title": self.title, "rows": self.rows(), "seeds": [dict(row) for row in self.by_seed]}

    def to_rich(self) -> list[Table]:
        """Return the summary and every seed's points for the terminal, a table for a few seeds each."""
        summary = readable_table(self.summary)
        title = f"{self.title}, {seeds_text(len(self.seeds))}"
        title = "\n".join(filter(None, [title, summary.common_line]))
        tables = [text_table(title, summary.headings, summary.cells)]
        for start in range(0, len(self.seeds), _SEEDS_A_TABLE):
            seeds = self.seeds[start : start + _SEEDS_A_TABLE]
            headings = (*self.keys, *(f"seed {seed}" for seed in seeds))
            rows = [
                [*(str(row[key]) for key in self.keys), *(self._points(row).get(seed, "") for seed in seeds)]
                for row in self.summary
            ]
            tables.append(text_table("Each seed", headings, rows))
        return tables

    def save(self, folder: Path, name: str) -> None:
        """Write `<name>.json`, `<name>.parquet` (the summary) and `<name>-seeds.parquet` into a folder.

        The JSON says beside both tables which commit, versions and machine it comes from.

        Raises:
            WriteError: if the place cannot be written.
        """
        write_rows(folder / f"{name}.parquet", self.rows())
        write_rows(folder / f"{name}-seeds.parquet", self.by_seed)
        write_json(folder / f"{name}.json", describe_origin() | self.to_dict())

    def _points(self, setting: Mapping[str, Any]) -> dict[int, str]:
        rows = [row for row in self.by_seed if all(row[key] == setting[key] for key in self.keys)]
        return {row["seed"]: _point(row) for row in sorted(rows, key=lambda row: row["seed"])}


def _point(row: Mapping[str, Any]) -> str:
    if "found" in row:
        return str(row["found"])
    low, high = 100 * row["low"], 100 * row["high"]
    return f"{100 * row['rate']:.1f} % ({row['wins']}/{row['episodes']}, {low:.1f} to {high:.1f})"


def spread_fields(name: str, spread: Spread | None) -> dict[str, float | None]:
    """Return a mean over seeds and the ends of its t interval as columns.

    All are None where there is no mean, the ends where they are unbounded, as those of one seed are.
    """
    low, high = spread.mean_interval if spread and len(spread.by_seed) > 1 else (None, None)
    return {name: spread.mean if spread else None, f"{name}_low": low, f"{name}_high": high}


def _table(
    title: str, keys: tuple[str, ...], results: Mapping[int, Records], summarise: Callable[[Records], dict[str, Any]]
) -> SeedsTable:
    """Make the table of every seed's rows; `summarise` returns the columns of one setting from its rows."""
    by_seed = [{"seed": seed, **row} for seed, rows in results.items() for row in rows]
    settings: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in by_seed:
        settings.setdefault(tuple(row[key] for key in keys), []).append(row)
    summary = [dict(zip(keys, setting, strict=True)) | summarise(rows) for setting, rows in settings.items()]
    return SeedsTable(title, keys, summary, by_seed)


def _spread(rows: Records, column: str, factor: float = 1.0) -> Spread:
    """Return a column of a setting's rows over seeds; what is missing is 0, as the gain per step without steps."""
    return Spread({row["seed"]: factor * (row[column] or 0.0) for row in rows})


def _win_percent(rows: Records) -> dict[str, Any]:
    return {"seeds": len(rows), **spread_fields("win_percent", _spread(rows, "rate", 100.0))}


def _share(name: str, rows: Records) -> dict[str, Any]:
    """Count the seeds for which something holds, with the exact interval of their share in percent."""
    held = sum(bool(row[name]) for row in rows)
    low, high = clopper_pearson_interval(held, len(rows)).scaled(100.0)
    percent = {f"{name}_percent": 100.0 * held / len(rows), f"{name}_percent_low": low, f"{name}_percent_high": high}
    return {f"seeds_{name}": f"{held} of {len(rows)}", **percent}


def controls_over_seeds(results: Mapping[int, Records]) -> SeedsTable:
    """Count, for each control that was asked, the seeds whose recommendation is right, with their share's interval."""

    def summarise(rows: Records) -> dict[str, Any]:
        return {"expected": rows[0]["expected"], **_share("right", rows)}

    asked = {seed: [row for row in rows if row["right"] is not None] for seed, rows in results.items()}
    return _table("Controls of the recommendation, right or wrong", ("control",), asked, summarise)


def recommendations_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Count, for each skill, the seeds that it is recommended to adapt for."""

    def summarise(rows: Records) -> dict[str, Any]:
        fields = _share("adapt", rows)
        for name in ("effect_kept_percent", "changed_decisions_percent", "input_energy"):
            fields |= spread_fields(name, _spread(rows, name))
        return fields

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
    asked = next(iter(reports.values())).question
    return _table(f"Recommended, {asked.home} -> {asked.scenario}", ("skill",), results, summarise)


def win_rates_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Return the whole agent's win rates in both domains with each skill replaced, in percent."""
    results = {seed: report.win_rates for seed, report in reports.items()}
    return _table("Win rates with each skill replaced", ("domain", "replaced", "stand_in"), results, _win_percent)


def recovery_over_seeds(target: RecoveryTarget, results: Mapping[int, Records]) -> SeedsTable:
    """Put the recoveries of several seeds together; `results` are each seed's rows, the first without any step.

    Win rates and gains are in percent and points, gains and differences paired by seed. A seed for which
    nothing was recommended counts in the recommended row as it was before.
    """
    first = JOINTLY if target.kind == JOINTLY else RECOMMENDED
    rows = {seed: _completed(arms, first) for seed, arms in results.items()}
    best = Spread(
        {seed: 100.0 * row["rate"] for seed, found in rows.items() for row in found if row["setting"] == first}
    )

    def summarise(found: Records) -> dict[str, Any]:
        label, rates, gains = found[0]["setting"], _spread(found, "rate", 100.0), _spread(found, "gain", 100.0)
        fields: dict[str, Any] = {
            "seeds": len(found),
            "steps": round(_spread(found, "steps").mean),
            "median_percent": rates.median,
        }
        fields |= spread_fields("win_percent", rates)
        if label == NOTHING:
            return fields
        fields |= spread_fields("gain_points", gains)
        fields |= spread_fields("gain_per_10000_steps", _spread(found, "gain_per_10000_steps", 100.0))
        fields |= {"seeds_that_gained": f"{sum(gain > 0.0 for gain in gains.values)} of {len(found)}"}
        if label == first:
            return fields
        return fields | spread_fields(f"{first}_ahead_points", paired_difference(best, rates))

    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    table = _table(title, ("setting",), rows, summarise)
    # What the others are compared with stands before them, even if the first seed had no recommendation.
    places = {NOTHING: 0, first: 1}
    return replace(table, summary=sorted(table.summary, key=lambda row: places.get(row["setting"], 2)))


def _completed(arms: Records, first: str) -> Records:
    return arms if any(arm["setting"] == first for arm in arms) else [*arms, {**arms[0], "setting": first}]


def check_chains(chains: Mapping[int, tuple[str, ...]]) -> None:
    """Make sure that every seed went through the same domains.

    Raises:
        SoulsGraphError: naming two seeds and their chains.
    """
    (first, expected), *others = chains.items()
    for seed, chain in others:
        if chain != expected:
            raise SoulsGraphError(
                f"retention: expected every seed to go through {' -> '.join(expected)} as seed {first} did, found "
                f"{' -> '.join(chain)} for seed {seed}; adapt it in the same order or leave it to a call of its own."
            )


def check_sources(sources: Mapping[int, str]) -> None:
    """Make sure that every seed continues the versions of the same scenario.

    Raises:
        SoulsGraphError: naming two seeds and their scenarios.
    """
    (first, expected), *others = sources.items()
    for seed, source in others:
        if source != expected:
            raise SoulsGraphError(
                f"recovery: expected every seed to continue the versions of {expected} as seed {first} does, found "
                f"{source} for seed {seed}; name one of them for all with `home`."
            )


def chain_rates_over_seeds(found: Mapping[int, Retention]) -> SeedsTable:
    """Return the win rate after each domain in each, in percent."""
    results = {seed: retention.rows() for seed, retention in found.items()}
    return _table("Wins after training on one domain in another", ("after", "domain"), results, _win_percent)


def measures_over_seeds(found: Mapping[int, Retention]) -> SeedsTable:
    """Return transfer, forgetting and the change of the old versions; a seed's missing measure is shown as missing."""

    def summarise(rows: Records) -> dict[str, Any]:
        known = [row for row in rows if row["value"] is not None]
        return {"seeds": len(known), **spread_fields("mean", _spread(known, "value") if known else None)}

    results = {
        seed: [
            {"measure": name, "value": value, "found": "missing" if value is None else f"{value:+.3f}"}
            for name, value in measures_of(retention).items()
        ]
        for seed, retention in found.items()
    }
    return _table("Transfer and forgetting, as shares of episodes", ("measure",), results, summarise)


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
