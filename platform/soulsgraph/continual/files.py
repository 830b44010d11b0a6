"""The tables of continual learning, ours and anyone's: their columns, and the checks of a file that is read.

`evaluations` has a row for each task that was played at a moment of training: with `decisions` 0 the win rate R[after,
task] between two tasks, with more a point of the learning curve of the task that is trained. The others are of our own
runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from soulsgraph.results.tables import frame_of, read_arrow
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import reading, shown

if TYPE_CHECKING:
    import pandas as pd

#: The method whose learning curve of a task is training it from scratch: b of forward transfer.
SCRATCH = "scratch"
REMEDY = "correct the file and try again"
EVALUATIONS, COSTS, SKILLS, PLASTICITY, DORMANT = "evaluations", "costs", "skills", "plasticity", "dormant"
TABLES = (EVALUATIONS, COSTS, SKILLS, PLASTICITY, DORMANT)
#: Decisions that were played to choose by which versions a task is played.
CHOOSING = "choosing_decisions"
#: The columns of evaluations: what identifies a row, the least that numbers may be, and which may be absent.
_KEYS = ("method", "seed", "after", "decisions", "task")
_LEAST = {"seed": -math.inf, "after": 0, "decisions": 0, "task": 1, "wins": 0, "episodes": 1, "ticks": 0, CHOOSING: 0}
_OPTIONAL = ("ticks", CHOOSING, "task_name")


def read_tables(path: Path) -> dict[str, pd.DataFrame]:
    """Read the tables in `results` of a run folder that are there, by name, or a file of evaluations alone.

    Raises:
        ReadError: if a file cannot be read.
        SoulsGraphError: if there are no evaluations, and as `check_frame`; if a file is no Parquet file.
    """
    with reading(path):
        if path.is_dir():
            paths = {name: path / "results" / f"{name}.parquet" for name in TABLES}
            paths = {name: file for name, file in paths.items() if name == EVALUATIONS or file.is_file()}
        else:
            paths = {EVALUATIONS: path}
    tables = {name: frame_of(read_arrow(file, "name a Parquet file")) for name, file in paths.items()}
    return tables | {EVALUATIONS: check_frame(tables[EVALUATIONS], str(paths[EVALUATIONS]))}


def check_frame(frame: pd.DataFrame, source: str = EVALUATIONS) -> pd.DataFrame:
    """Return the columns of evaluations that a frame has, checked; what is missing of an optional one is nan, or "".

    Raises:
        SoulsGraphError: if a column is missing, there twice, or of another type; if a value is missing or out of range;
            if two rows are of the same moment.
    """
    # Imported here: a study is planned, and its help printed, without it.
    from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_string_dtype

    where = Where(source, remedy=REMEDY)
    names = [name for name in ("method", *_LEAST, "task_name") if name not in _OPTIONAL or name in frame]
    if not len(frame):
        raise where.error("rows of evaluations", "none")
    for name in names:
        if [*frame.columns].count(name) != 1:
            raise where.error(f"one column {name}", f"the columns {', '.join(map(shown, frame.columns))}")
    frame = frame[names].astype(object).convert_dtypes()
    for name in names:
        column, optional = frame[name], name in _OPTIONAL
        missing, wrong = column.isna(), column.isna() & (not optional)
        expected = "text" if name not in _LEAST else "whole numbers"
        if name in _LEAST and math.isfinite(_LEAST[name]):
            expected += f" from {_LEAST[name]} on"
        typed = is_string_dtype if name not in _LEAST else is_numeric_dtype
        if not missing.all() and (is_bool_dtype(column) or not typed(column)):
            raise where.at(f"column {name}").error(expected, f"values of type {column.dtype}")
        if name in _LEAST and not missing.all():
            wrong |= ((column < _LEAST[name]) | (column % 1 != 0)).fillna(value=False)
        elif not optional and not missing.all():
            wrong |= column.str.strip() == ""
        if wrong.any():
            row = int(wrong.argmax())
            found = "none" if missing.iloc[row] else shown(column.iloc[row])
            raise where.at(f"column {name}").error(expected, f"{found} in row {row}")
        kind = object if name not in _LEAST else float if optional else int
        frame[name] = column.fillna("").astype(kind) if kind is object else column.astype(kind)
    if (above := frame["wins"] > frame["episodes"]).any():
        row = int(above.argmax())
        found = f"{frame['wins'].iloc[row]} of {frame['episodes'].iloc[row]} in row {row}"
        raise where.at("column wins").error("at most as many as episodes", found)
    if (again := frame.duplicated([*_KEYS])).any():
        named = ", ".join(f"{key} {frame[key].iloc[int(again.argmax())]}" for key in _KEYS)
        raise where.error(f"one row for each {', '.join(_KEYS)}", f"a second one of {named}")
    return frame.reset_index(drop=True)


@dataclass(frozen=True)
class Trajectory:
    """What one method did with one seed over a sequence of tasks.

    `rates` (tasks + 1, tasks) has the win rate in each task (columns) after each number of tasks (rows), nan where it
    was not played. `curves` has for each task its points (points, 3), decisions, control ticks and win rate in order,
    from the beginning of its training on where that was played; empty without a curve. Ticks are nan where the file has
    none.
    """

    method: str
    seed: int
    rates: npt.NDArray[np.float64]
    curves: tuple[npt.NDArray[np.float64], ...]

    @property
    def untrained(self) -> npt.NDArray[np.float64]:
        """Win rates before any training, (tasks,)."""
        return np.asarray(self.rates[0])

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """Win rates after each task, (tasks, tasks)."""
        return np.asarray(self.rates[1:])


def trajectories(frame: pd.DataFrame, source: str = EVALUATIONS) -> list[Trajectory]:
    """Return what each method did with each seed, in the order of the file, of checked evaluations.

    Raises:
        SoulsGraphError: if a task lacks in the sequence, or a method and seed lack cells of R or a task's curve; if
            seeds of a method have other cells.
    """
    there = np.unique(frame["task"])
    tasks = int(there[-1])
    if tasks > there.size:
        missing = int(np.argmax(there != np.arange(1, there.size + 1))) + 1
        raise Where(source, remedy=REMEDY).error(f"every task from 1 to {tasks}", f"no row of task {missing}")
    if (most := int(frame["after"].max())) > tasks:
        raise Where(source, "column after", REMEDY).error(f"at most the {tasks} tasks that are played", str(most))
    curves = frame[frame["decisions"] > 0]
    if (other := curves[curves["task"] != curves["after"] + 1]).size:
        row = other.iloc[0]
        played = f"task {row['task']} after {row['after']} in row {other.index[0]}"
        raise Where(source, remedy=REMEDY).error("with decisions above 0 the task that is trained, after + 1", played)
    found = [
        _trajectory(str(method), int(seed), rows, tasks, source)
        for (method, seed), rows in frame.groupby(["method", "seed"], sort=False)
    ]
    _check_alike(found, source)
    return found


def _trajectory(method: str, seed: int, frame: pd.DataFrame, tasks: int, source: str) -> Trajectory:
    rates = np.full((tasks + 1, tasks), np.nan)
    between = frame[frame["decisions"] == 0]
    rates[between["after"], between["task"] - 1] = between["wins"] / between["episodes"]
    where = f"method {method}, seed {seed}"
    for after, row in enumerate(rates):
        _check_row(method, after, ~np.isnan(row), source, where)
    # The last is in the last row, which a bound that learns all tasks at once has alone.
    own = ~np.isnan(np.diagonal(rates[1:]))[:-1]
    if own.any() and not own.all():
        task = int(np.argmin(own)) + 1
        raise Where(source, where, REMEDY).error("the end of each task's own training", f"no R[{task}, {task}]")
    points = [_curve(frame, rates, task) for task in range(1, tasks + 1)]
    known = [len(curve) > 0 for curve in points]
    if any(known) and not all(known):
        found = f"none of task {known.index(False) + 1}"
        raise Where(source, where, REMEDY).error("a learning curve of every task", found)
    return Trajectory(method, seed, rates, tuple(points))


def _check_row(method: str, after: int, known: npt.NDArray[np.bool_], source: str, where: str) -> None:
    """Check that a row of R is whole; or up to the task that was trained, or the next; or has those two alone."""
    tasks = np.arange(1, len(known) + 1)
    last = after == len(known) and method != SCRATCH
    near = not known[~np.isin(tasks, (after, after + 1))].any()
    seen = any((known == (tasks <= most)).all() for most in (after, after + 1))
    if known.all() or (not last and (near or seen)):
        return
    found = f"no R[{after}, {tasks[~known][0]}]"
    raise Where(source, where, REMEDY).error(f"the win rate in every task after {after}", found)


def _curve(frame: pd.DataFrame, rates: npt.NDArray[np.float64], task: int) -> npt.NDArray[np.float64]:
    """Return the points of a task's learning curve, its beginning first, (points, 3); none without one."""
    rows = frame[(frame["decisions"] > 0) & (frame["task"] == task)].sort_values("decisions")
    if rows.empty:
        return np.empty((0, 3))
    ticks = rows["ticks"] if "ticks" in rows else np.full(len(rows), np.nan)
    points = np.column_stack([rows["decisions"], ticks, rows["wins"] / rows["episodes"]]).astype(np.float64)
    start = rates[task - 1, task - 1]
    return points if math.isnan(start) else np.vstack([[0.0, 0.0, start], points])


def _check_alike(found: list[Trajectory], source: str) -> None:
    """Check that all seeds of a method have the same cells: a mean over others would compare different tasks."""
    first: dict[str, Trajectory] = {}
    for one in found:
        before = first.setdefault(one.method, one)
        differing = np.argwhere(np.isnan(one.rates) != np.isnan(before.rates))
        if differing.size:
            after, task = differing[0]
            lacking, having = (one, before) if np.isnan(one.rates[after, task]) else (before, one)
            expected = f"R[{after}, {task + 1}], which seed {having.seed} has"
            raise Where(source, f"method {one.method}, seed {lacking.seed}", REMEDY).error(expected, "none")
        if bool(len(one.curves[0])) != bool(len(before.curves[0])):
            expected = f"learning curves, as of seed {before.seed}, or none of either"
            raise Where(source, f"method {one.method}, seed {one.seed}", REMEDY).error(expected, "the opposite")
