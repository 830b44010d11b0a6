"""The tables of continual learning, ours and anyone's: their columns, and the checks of a file that is read.

`evaluations` has a row for each task that was played at a moment of training: with `decisions` 0 the win rate R[after,
task] between two tasks, with more a point of the learning curve of the task that is trained. The others are of our own
runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from soulsgraph.results.tables import read_arrow
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: The method whose learning curve of a task is training it from scratch: b of forward transfer.
SCRATCH = "scratch"
REMEDY = "correct the file and try again"
#: Above it not every whole number is a float.
_MOST = 2**53


#: What a column holds: text, whole numbers or any numbers, from the least one on.
TableColumn = tuple[Literal["text", "whole numbers", "numbers"], int]
_TEXT: TableColumn = ("text", 0)
_WHOLE: TableColumn = ("whole numbers", 0)
_FROM_1: TableColumn = ("whole numbers", 1)
_ANY: TableColumn = ("whole numbers", -_MOST)
_NUMBER: TableColumn = ("numbers", 0)
_RUN, _RATE = {"method": _TEXT, "seed": _ANY}, {"wins": _WHOLE, "episodes": _FROM_1}
EVALUATIONS, COSTS, SKILLS, PLASTICITY, DORMANT = "evaluations", "costs", "skills", "plasticity", "dormant"
#: Decisions that were played to choose by which versions a task is played.
CHOOSING = "choosing_decisions"
#: The tables by name: columns that identify a row, which no two rows share, the others, and those that may be absent.
TABLES: Mapping[str, tuple[dict[str, TableColumn], dict[str, TableColumn], dict[str, TableColumn]]] = {
    EVALUATIONS: (
        {**_RUN, "after": _WHOLE, "decisions": _WHOLE, "task": _FROM_1},
        _RATE,
        {"ticks": _WHOLE, CHOOSING: _WHOLE, "task_name": _TEXT},
    ),
    COSTS: (
        {**_RUN, "task": _FROM_1},
        {**dict.fromkeys(("decisions", "selection_decisions", "ticks", "bytes"), _WHOLE), "cpu_s": _NUMBER},
        {},
    ),
    SKILLS: ({**_RUN, "task": _FROM_1, "skill": _TEXT}, _RATE, {}),
    PLASTICITY: ({**_RUN, "after": _WHOLE, "boss": _TEXT}, _RATE, {}),
    DORMANT: ({**_RUN, "after": _WHOLE, "skill": _TEXT}, {"share": _NUMBER}, {}),
}


def read_results(path: Path, name: str = EVALUATIONS) -> pd.DataFrame:
    """Read a table from a Parquet file, checked: a column for each of its own; others of the file are left out.

    Raises:
        ReadError: if the file cannot be read.
        SoulsGraphError: if it is missing, no Parquet file, or lacks a column; if a value is missing, of another type or
            out of range; if two rows are of the same moment.
    """
    return _checked(read_arrow(path, "name a Parquet file"), name, str(path))


def read_folder(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables in `results` of a run folder that are there, by name; evaluations have to be.

    Raises:
        SoulsGraphError: as `read_results`.
    """
    paths = {name: folder / "results" / f"{name}.parquet" for name in TABLES}
    with reading(folder):
        there = {name: path for name, path in paths.items() if name == EVALUATIONS or path.is_file()}
    return {name: read_results(path, name) for name, path in there.items()}


def check_frame(frame: pd.DataFrame, name: str = EVALUATIONS) -> pd.DataFrame:
    """Return the columns of a table that a frame has, checked.

    Raises:
        SoulsGraphError: as `read_results`.
    """
    import pyarrow as pa

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        found = str(error).splitlines()[0]
        raise SoulsGraphError(
            f"{name}: expected a frame with one type a column, found: {found}; correct it and try again."
        ) from error
    return _checked(table, name, name)


def _checked(table: pa.Table, name: str, source: str) -> pd.DataFrame:
    keys, others, optional = TABLES[name]
    if not table.num_rows:
        raise Where(source, remedy=REMEDY).error(f"rows of {name}", "none")
    columns: dict[str, Any] = {}
    for column, kind in {**keys, **others, **optional}.items():
        if column in table.column_names:
            at = Where(source, f"column {column}", REMEDY)
            columns[column] = _values(table.column(column), kind, column in optional, at)
        elif column not in optional:
            there = ", ".join(map(shown, table.column_names)) or "none"
            raise Where(source, remedy=REMEDY).error(f"a column {column} of {kind[0]}", f"the columns {there}")
    # Imported here, as pyarrow: a study is planned, and its help printed, without either.
    import pandas as pd

    frame = pd.DataFrame(columns)
    _check_counts(frame, source)
    again = np.flatnonzero(frame.duplicated([*keys]))
    if again.size:
        found = ", ".join(f"{key} {frame[key][again[0]]}" for key in keys)
        raise Where(source, remedy=REMEDY).error(f"one row for each {', '.join(keys)}", f"a second one of {found}")
    return frame


def _values(array: pa.ChunkedArray, kind: TableColumn, optional: bool, at: Where) -> npt.NDArray[Any]:
    """Return a column's values in range; what is missing of an optional one is nan, or an empty text."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    (name, least), types, known = kind, pa.types, array.type
    text = types.is_string(known) or types.is_large_string(known)
    number = types.is_integer(known) or types.is_floating(known)
    # Without a value a column's type is not known.
    if not (types.is_null(known) or (text if name == "text" else number)):
        raise at.error(name, f"values of type {known}")
    if name == "text":
        values = np.array([value or "" for value in array.to_pylist()], object)
        missing = wrong = np.array([not value.strip() for value in values])
    else:
        values = array.cast(pa.float64(), safe=False).to_numpy()
        missing = np.isnan(values)
        inside = (values >= least) & (values <= _MOST) & ((name == "numbers") | (values == np.floor(values)))
        wrong = ~inside & ~missing
    refused = (wrong & ~missing) if optional else wrong | missing
    if refused.any():
        row = int(np.flatnonzero(refused)[0])
        found = "none" if missing[row] else shown(values[[row]].tolist()[0])
        expected = name if name == "text" or least == -_MOST else f"{name} from {least} on"
        raise at.error(f"{expected}{'' if name == 'text' else f', at most {_MOST}'}", f"{found} in row {row}")
    return values.astype(np.int64) if name == "whole numbers" and not optional else values


def _check_counts(frame: pd.DataFrame, source: str) -> None:
    if "wins" in frame:
        above = np.flatnonzero(frame["wins"] > frame["episodes"])
        if above.size:
            row = frame.iloc[above[0]]
            found = f"{row['wins']} of {row['episodes']} in row {above[0]}"
            raise Where(source, "column wins", REMEDY).error("at most as many as episodes", found)
    if "share" in frame and (above := np.flatnonzero(frame["share"] > 1.0)).size:
        found = f"{frame['share'][above[0]]} in row {above[0]}"
        raise Where(source, "column share", REMEDY).error("shares from 0 to 1", found)


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
