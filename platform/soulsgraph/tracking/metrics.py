"""What is logged of every skill: names as the field has them, by the columns of the tables that hold the same.

`docs/runs.md` has their units and meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: The tables of a run that hold what is logged.
Kept = Literal["training", "curves"]

#: Names below the skill's: of each table in `results/`, by its columns.
METRICS: Mapping[Kept, Mapping[str, str]] = {
    "training": {
        "return": "charts/episodic_return",
        "length": "charts/episodic_length",
        "seconds": "charts/episodic_seconds",
        "win_rate": "charts/win_rate",
        "exploration": "charts/epsilon",
        "steps_per_s": "charts/SPS",
        "env_runners": "charts/env_runners",
        "loss": "losses/td_loss",
        "q": "losses/q_values",
    },
    "curves": {
        "return": "eval/episodic_return",
        "low": "eval/episodic_return_low",
        "high": "eval/episodic_return_high",
        "length": "eval/episodic_length",
        "seconds": "eval/episodic_seconds",
        "win_rate": "eval/win_rate",
    },
}
#: Reward terms, in the tables and as logged.
TERM_COLUMN, TERM = "reward/", "rewards/"
#: What `--track-fights` logs on top: names below the skill's.
Q_VALUES, ACTIONS, FIGHT = "eval/q_values", "eval/actions", "eval/fight"
#: How the results at the end begin: the win rate of each row of the table.
FINAL_WIN_RATE = "eval/win_rate/"


def logged(table: Kept, values: Mapping[str, float]) -> dict[str, float]:
    """Return values of a table's columns by the names that they are logged under; every other column is left out."""
    found = {METRICS[table][column]: value for column, value in values.items() if column in METRICS[table]}
    terms = {column: value for column, value in values.items() if column.startswith(TERM_COLUMN)}
    return found | {TERM + column.removeprefix(TERM_COLUMN): value for column, value in terms.items()}
