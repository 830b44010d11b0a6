"""The main job: train every skill in graph order, then evaluate the composed agent."""

from __future__ import annotations

import time

from rich.console import Console

from soulsgraph.domains import finished_versions
from soulsgraph.evaluation import (
    EVALUATION_SEED,
    allowed_rows,
    check_evaluation,
    evaluate_rows,
    evaluation_seeds,
    win_rate,
)
from soulsgraph.files import write_json
from soulsgraph.plan import Stage
from soulsgraph.progress import Counting, Display, stage_progress
from soulsgraph.reports.parquet import write_episodes, write_rows
from soulsgraph.reports.tables import WinRateTable
from soulsgraph.reports.tensorboard import Board
from soulsgraph.run_folder import RunFolder
from soulsgraph.training import Workplace, train_stage
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.artifact import SkillCard


def train_stages(place: Workplace, stages: tuple[Stage, ...], console: Console) -> list[SkillCard]:
    """Train the stages that are not finished yet, one after another."""
    cards: list[SkillCard] = []
    for stage in stages:
        finished = finished_versions(place.run, stage)
        for card in finished:
            console.print(f"{card.skill}: already trained, v{card.version}", highlight=False)
        if not finished:
            began = time.monotonic()
            finished = train_stage(place, stage)
            for card in finished:
                console.print(_closing_line(card, time.monotonic() - began), highlight=False, soft_wrap=True)
        cards += finished
    return cards


def _closing_line(card: SkillCard, wall_s: float) -> str:
    together = card.training.jointly
    frozen = ", ".join(f"{one.skill} v{one.version}" for one in card.upstream if one.skill not in together)
    verified = f"; frozen skills bit-identical: {frozen}" if frozen else ""
    return f"{card.skill} v{card.version}: {card.training.steps:,} steps in {wall_s:.0f} s{verified}"


def evaluate_run(run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, display: Display = "auto") -> WinRateTable:
    """Evaluate every row of Table 1 the run allows; write it, with every episode, as Parquet and JSON."""
    check_evaluation(seed, episodes)
    with stage_progress("table", episodes * len(allowed_rows(run)), display, unit="episodes") as progress:
        evaluated = evaluate_rows(run, episodes, seed, Counting(progress))
    table = WinRateTable(
        f"Win rates, {run.plan.scenario}, {episodes} episodes a row",
        tuple(win_rate(row, played, run.plan) for row, played in evaluated.items()),
    )
    terms = make_skill(run.plan.skill_graph.order[-1], run.plan.options).reward.names
    settings = {row.label: played for row, played in evaluated.items()}
    write_episodes(run.results("episodes"), settings, terms, evaluation_seeds(seed, episodes))
    write_rows(run.results("table"), [row.to_dict() for row in table.rows])
    write_json(run.path / "results" / "table.json", table.to_dict())
    return table


def show_on_board(board: Board, run: RunFolder, table: WinRateTable) -> None:
    """Put the table and what the run was trained with on the TensorBoard."""
    plan = run.plan
    board.text("win rates", table.to_markdown())
    values: dict[str, str | int | float | bool] = {
        "scenario": plan.scenario,
        "preset": plan.preset,
        "seed": plan.seed,
        "scale": plan.scale,
        "lanes": plan.lanes or 0,
        "env_runners": plan.env_runners,
    }
    board.hyperparameters(values, {f"win rate/{row.setting}": row.rate for row in table.rows})
