"""The table of win rates of a run: every row evaluated, and written with every episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import WinRateTable, write_episodes, write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.plan import differing
from soulsgraph.runs.progress import Display, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.skills import make_skill

Played = Mapping[evaluating.WinRateRow, Episodes]


def play_table(
    run: RunFolder, episodes: int, seed: int, display: Display = "auto", worker: WorkerProcess | None = None
) -> Played:
    """Play every row of Table 1 that the run allows, with a bar; a `worker` that runs plays a part.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or a number out of range.
    """
    evaluating.check_evaluation(seed, episodes)
    total = episodes * len(evaluating.allowed_rows(run))
    with stage_progress("table", total, display, unit="episodes") as progress:
        return evaluating.evaluate_rows(run, episodes, seed, progress.advance, worker)


def table_of(run: RunFolder, played: Played) -> WinRateTable:
    """Return the win rates of rows that were played."""
    rows = tuple(evaluating.win_rate(row, fights, run.plan) for row, fights in played.items())
    episodes = max(map(len, played.values()))
    return WinRateTable(f"Win rates, {run.plan.scenario}, {episodes} episodes a row", rows)


def kept_table(run: RunFolder, episodes: int, seed: int) -> WinRateTable | None:
    """Return the table that was written of these episodes, where it is of the present versions and fights.

    Raises:
        SoulsGraphError: if it is damaged, or a skill is missing.
    """
    file = run.path / "results" / "table.json"
    if not all(one.exists() for one in (file, run.results("table"), run.results("episodes"))):
        return None
    where = Where(file, remedy="remove the file")
    saved = validate(dict[str, Any], read_file(where), where)
    if differing(evaluating.table_inputs(run, episodes, seed), saved.get("inputs")):
        return None
    rows = (WinRate(row["wins"], row["episodes"], row["setting"], row["paper_percent"]) for row in saved["rows"])
    return WinRateTable(saved["title"], tuple(rows))


def write_table(run: RunFolder, played: Played, seed: int) -> None:
    """Write rows that were played of an evaluation `seed`, with every episode, as Parquet and JSON.

    Raises:
        WriteError: if the run folder cannot be written.
    """
    plan, table, episodes = run.plan, table_of(run, played), max(map(len, played.values()))
    terms = make_skill(plan.skill_graph.order[-1], plan.options).reward.names
    settings, seeds = {row.label: fights for row, fights in played.items()}, evaluating.evaluation_seeds(seed, episodes)
    write_episodes(run.results("episodes"), settings, terms, {"seed": seeds})
    write_rows(run.results("table"), [row.to_dict() for row in table.rows])
    inputs = evaluating.table_inputs(run, episodes, seed)
    write_json(run.path / "results" / "table.json", {**table.to_dict(), "inputs": inputs})
