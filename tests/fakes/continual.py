"""An invented run of continual learning: methods that forget, remember and transfer by simple rules, seeded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

EPISODES = 200
SKILLS = ("camera", "lock_on", "movement", "dodge", "heal_attack")
#: Points of a learning curve, as shares of a task's budget.
_POINTS = (0.125, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Habits:
    """What a method does: the share of its gain that it keeps a task, how well it begins, what it stores."""

    keeps: float
    begins: float
    bytes_a_task: int
    selects: int = 0


#: Methods by name; the one from scratch begins at nothing, and its later tasks are no continuation.
METHODS = {
    "kept": Habits(1.0, 0.35, 51_000, 8_000),
    "newest": Habits(0.62, 0.35, 0, 8_000),
    "ewc": Habits(0.85, 0.28, 102_000),
    "scratch": Habits(1.0, 0.0, 250_000),
}


@dataclass(frozen=True)
class InventedRun:
    """An invented run: tables by name."""

    tables: dict[str, pd.DataFrame]

    @classmethod
    def draw(
        cls, methods: Sequence[str] = tuple(METHODS), seeds: int = 4, tasks: int = 5, budget: int = 80_000
    ) -> "InventedRun":
        """Draw the tables; the same arguments draw the same."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for seed in range(seeds):
            difficulty = np.random.default_rng((seed, 7)).uniform(-0.08, 0.08, tasks)
            for place, method in enumerate(methods):
                drawn = np.random.default_rng((seed, 11, place))
                for name, row in _rows_of(METHODS[method], difficulty, budget, drawn):
                    rows.setdefault(name, []).append({"method": method, "seed": seed, **row})
        return cls({name: pd.DataFrame(own) for name, own in rows.items()})

    @property
    def evaluations(self) -> pd.DataFrame:
        """The table that is scored."""
        return self.tables["evaluations"]

    def write(self, folder: Path) -> Path:
        """Write a run folder, and return it."""
        results = folder / "results"
        results.mkdir(parents=True)
        for name, table in self.tables.items():
            table.to_parquet(results / f"{name}.parquet", index=False)
        return folder


def _counts(rate: float, drawn: np.random.Generator) -> dict[str, int]:
    return {"wins": int(drawn.binomial(EPISODES, min(max(rate, 0.0), 1.0))), "episodes": EPISODES}


def _rows_of(
    habits: Habits, difficulty: np.ndarray, budget: int, drawn: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows of all tables for one method and seed."""
    tasks = len(difficulty)
    ends = 0.86 + difficulty + drawn.normal(0.0, 0.02, tasks)

    def rate(after: int, task: int) -> float:
        begun = habits.begins * (0.2 if after == 0 else 1.0)
        if task > after:
            return begun
        return float(begun + (ends[task - 1] - begun) * habits.keeps ** (after - task))

    for after in range(tasks + 1):
        for task in range(1, tasks + 1):
            names = {"after": after, "task": task, "task_name": f"boss {task}"}
            row = {**names, "decisions": 0, "ticks": 0, **_counts(rate(after, task), drawn)}
            yield "evaluations", row
            if task == after + 1:
                start, end = rate(after, task), ends[task - 1]
                for share in _POINTS:
                    learned = max(share - habits.selects / budget, 0.0)
                    height = start + (end - start) * (1.0 - np.exp(-4.0 * learned))
                    spent = {"decisions": int(share * budget), "ticks": int(2.3 * share * budget)}
                    yield "evaluations", {**names, **spent, **_counts(float(height), drawn)}
        yield from _beside(habits, after, budget, drawn)
    for task in range(1, tasks + 1):
        for skill in SKILLS:
            back = 0.5 if skill in ("dodge", "heal_attack") else 0.05
            final = rate(tasks, task)
            won = final + back * (ends[task - 1] - final)
            yield "skills", {"task": task, "skill": skill, **_counts(float(won), drawn)}


def _beside(
    habits: Habits, after: int, budget: int, drawn: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is measured beside the evaluations after a task."""
    for boss in ("held-out 1", "held-out 2"):
        yield "plasticity", {"after": after, "boss": boss, **_counts(0.7 - 0.02 * after, drawn)}
    for skill in SKILLS:
        share = float(min(0.05 + 0.03 * after + drawn.uniform(0.0, 0.02), 1.0))
        yield "dormant", {"after": after, "skill": skill, "share": share}
    if after:
        spent = {"decisions": budget, "selection_decisions": habits.selects, "ticks": int(2.3 * budget)}
        stored = {"cpu_s": float(20.0 + drawn.normal(0.0, 0.5)), "bytes": 51_000 + habits.bytes_a_task * after}
        yield "costs", {"task": after, **spent, **stored}
