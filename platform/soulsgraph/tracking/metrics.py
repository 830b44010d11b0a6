"""What is logged of every skill: names as the field has them, units, and the columns of the tables that hold the same.

The tables of a run (`results/training.parquet`, `results/curves.parquet`) have columns of their own names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: The tables of a run that hold what is logged.
Kept = Literal["training", "curves"]


@dataclass(frozen=True)
class LoggedMetric:
    """A logged number: its name below the skill's, the column of its table, its unit and what it is."""

    name: str
    table: Kept
    column: str
    unit: str
    meaning: str


METRICS = (
    LoggedMetric(
        "charts/episodic_return",
        "training",
        "return",
        "reward",
        "mean return of the episodes that ended, with exploration",
    ),
    LoggedMetric("charts/episodic_length", "training", "length", "decisions", "mean length of these episodes"),
    LoggedMetric("charts/episodic_seconds", "training", "seconds", "s", "the same in game time"),
    LoggedMetric("charts/win_rate", "training", "win_rate", "share", "share of these episodes that were won"),
    LoggedMetric("charts/epsilon", "training", "exploration", "share", "share of decisions that are drawn at random"),
    LoggedMetric("charts/SPS", "training", "steps_per_s", "decisions/s", "decisions received per second of wall time"),
    LoggedMetric("charts/env_runners", "training", "env_runners", "number", "remote env runners that play"),
    LoggedMetric(
        "losses/td_loss", "training", "loss", "reward²", "mean loss of the updates (Huber's, unless set otherwise)"
    ),
    LoggedMetric("losses/q_values", "training", "q", "reward", "mean Q-value of the actions in the batches"),
    LoggedMetric(
        "eval/episodic_return", "curves", "return", "reward", "mean return of 5 greedy episodes, the same each time"
    ),
    LoggedMetric("eval/episodic_return_low", "curves", "low", "reward", "lower end of its 95 % interval over episodes"),
    LoggedMetric("eval/episodic_return_high", "curves", "high", "reward", "upper end of it"),
    LoggedMetric("eval/episodic_length", "curves", "length", "decisions", "mean length of the greedy episodes"),
    LoggedMetric("eval/episodic_seconds", "curves", "seconds", "s", "the same in game time"),
    LoggedMetric("eval/win_rate", "curves", "win_rate", "share", "share of the greedy episodes that were won"),
)
_NAMES: Mapping[tuple[str, str], str] = {(metric.table, metric.column): metric.name for metric in METRICS}
#: Reward terms, in the tables and as logged.
TERM_COLUMN, TERM = "reward/", "rewards/"
#: What `--track-fights` logs on top: names below the skill's.
Q_VALUES, ACTIONS, FIGHT = "eval/q_values", "eval/actions", "eval/fight"
#: How the results at the end begin: the win rate of each row of the table.
FINAL_WIN_RATE = "eval/win_rate/"


def logged(table: Kept, values: Mapping[str, float]) -> dict[str, float]:
    """Return values of a table's columns by the names that they are logged under; every other column is left out."""
    found: dict[str, float] = {}
    for column, value in values.items():
        if column.startswith(TERM_COLUMN):
            found[TERM + column.removeprefix(TERM_COLUMN)] = value
        elif (table, column) in _NAMES:
            found[_NAMES[table, column]] = value
    return found


def side_by_side(skills: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return charts by title, and in each the pattern of a skill's names: the skills beside each other."""
    patterns = {
        metric.name: re.escape(metric.name) for metric in METRICS if not metric.name.endswith(("_low", "_high"))
    }
    patterns[TERM.rstrip("/")] = f"{TERM}.*"
    first = ("eval/win_rate", "eval/episodic_return")
    titles = [*first, *(title for title in patterns if title not in first)]
    return {title: {skill: f"{re.escape(skill)}/{patterns[title]}" for skill in skills} for title in titles}
