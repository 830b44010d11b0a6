"""The table of win rates of a run: every row evaluated, and written with every episode."""

from __future__ import annotations

from typing import Any

from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import WinRateTable, write_episodes, write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.plan import differing
from soulsgraph.runs.progress import Display, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.skills import make_skill


def win_rates(
    run: RunFolder,
    episodes: int,
    seed: int,
    display: Display = "auto",
    worker: WorkerProcess | None = None,
    write: bool = True,
) -> WinRateTable:
    """Return every row of Table 1 that the run allows: as it was written, where of these episodes, versions and fights.

    Else the rows are played, with a bar, a `worker` that runs playing a part, and written as Parquet and JSON with
    every episode.

    Raises:
        SoulsGraphError: if a number is out of its range, a skill is missing or damaged, or what was written is.
        WriteError: if the run folder cannot be written.
    """
    evaluating.check_evaluation(seed, episodes)
    inputs, file = evaluating.table_inputs(run, episodes, seed), run.path / "results" / "table.json"
    parquet = {name: run.results(name) for name in ("table", "episodes")}
    if all(one.exists() for one in (file, *parquet.values())):
        where = Where(file, remedy="remove the file")
        saved = validate(dict[str, Any], read_file(where), where)
        if not differing(inputs, saved.get("inputs")):
            rows = (
                WinRate(row["wins"], row["episodes"], row["setting"], row["paper_percent"]) for row in saved["rows"]
            )
            return WinRateTable(saved["title"], tuple(rows))
    total = episodes * len(inputs["rows"])
    with stage_progress("table", total, display, unit="episodes") as progress:
        played = evaluating.evaluate_rows(run, episodes, seed, progress.advance, worker)
    rates = tuple(WinRate.of(fights.won, row.label, row.paper_percent) for row, fights in played.items())
    table = WinRateTable(f"Win rates, {run.plan.scenario}, {episodes} episodes a row", rates)
    if write:
        terms = make_skill(run.plan.skill_graph.order[-1], run.plan.options).reward.names
        settings = {row.label: fights for row, fights in played.items()}
        write_episodes(parquet["episodes"], settings, terms, {"seed": evaluating.evaluation_seeds(seed, episodes)})
        write_rows(parquet["table"], [row.to_dict() for row in table.rows])
        write_json(file, {**table.to_dict(), "inputs": inputs})
    return table
