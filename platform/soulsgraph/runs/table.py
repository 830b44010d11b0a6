"""The table of win rates of a run: every row evaluated, and written with every episode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import WinRateTable, write_episodes, write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.plan import differing
from soulsgraph.runs.progress import stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.errors import reading
from soulsgraph_envs.core.files import write_json
from soulsgraph_envs.skills import make_skill

_FILE = Path("results", "table.json")


def saved_table(run: RunFolder) -> tuple[WinRateTable, Mapping[str, Any]] | None:
    """Return the table that was written last, and what determined it; None without one, DataError if it is damaged."""
    where = Where(run.path / _FILE, remedy="remove the file")
    with reading(run.path):
        if not (run.path / _FILE).is_file():
            return None
    saved = validate(dict[str, Any], read_file(where), where)
    rows = (WinRate(row["wins"], row["episodes"], row["setting"], row["paper_percent"]) for row in saved["rows"])
    return WinRateTable(saved["title"], tuple(rows)), saved.get("inputs", {})


def kept_rates(run: RunFolder, inputs: Mapping[str, Any]) -> WinRateTable | None:
    """Return the table that was written of these inputs, if it is the last; raises as `saved_table`."""
    table, kept = saved_table(run) or (None, {})
    whole = all(run.results(name).exists() for name in ("table", "episodes"))
    return table if whole and not differing(inputs, kept) else None


def win_rates(
    run: RunFolder, episodes: int, seed: int, console: Console | None = None, write: bool = True
) -> WinRateTable:
    """Return every row of Table 1 that the run allows: as it was written, where of these episodes, versions and fights.

    Else the rows are played, with a bar, and written as Parquet and JSON with every episode.

    Raises:
        SoulsGraphError: if a number is out of its range, a skill is missing or damaged, or what was written is.
        WriteError: if the run folder cannot be written.
    """
    inputs = evaluating.table_inputs(run, episodes, seed)
    if (kept := kept_rates(run, inputs)) is not None:
        return kept
    rows = evaluating.allowed_rows(run)
    with stage_progress("table", episodes * len(rows), console, unit="episodes") as progress:
        played = [evaluating.evaluate(run, row, episodes, seed, (), progress.advance).episodes for row in rows]
    rates = tuple(
        WinRate.of(fights.won, row.label, row.paper_percent) for row, fights in zip(rows, played, strict=True)
    )
    table = WinRateTable(f"Win rates, {run.plan.scenario}, {episodes} episodes a row", rates)
    if write:
        terms = make_skill(run.plan.skill_graph.order[-1], run.plan.options).reward.names
        settings = {row.label: fights for row, fights in zip(rows, played, strict=True)}
        write_episodes(run.results("episodes"), settings, terms, {"seed": evaluating.evaluation_seeds(seed, episodes)})
        write_rows(run.results("table"), [row.to_dict() for row in table.rows])
        write_json(run.path / _FILE, {**table.to_dict(), "inputs": inputs})
    return table
