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


@dataclass(frozen=True)
class TableColumn:
    """A column: text, whole numbers or numbers of any kind, from `least` on; one that is optional may be absent."""

    name: str
    kind: Literal["text", "whole", "number"]
    least: int = 0
    optional: bool = False

    @property
    def expectation(self) -> str:
        """What its values are, for a message."""
        if self.kind == "text":
            return "text"
        numbers = "whole numbers" if self.kind == "whole" else "numbers"
        return numbers if self.least == -_MOST else f"{numbers} from {self.least} on"


_METHOD, _SEED = TableColumn("method", "text"), TableColumn("seed", "whole", -_MOST)
_AFTER, _TASK = TableColumn("after", "whole"), TableColumn("task", "whole", 1)
_RATE = (TableColumn("wins", "whole"), TableColumn("episodes", "whole", 1))
_SKILL = TableColumn("skill", "text")
EVALUATIONS, COSTS, SKILLS, PLASTICITY, DORMANT = "evaluations", "costs", "skills", "plasticity", "dormant"
#: Decisions that were played to choose by which versions a task is played.
CHOOSING = "choosing_decisions"
#: The tables by name: the columns that identify a row, which no two rows share, and the others.
TABLES: Mapping[str, tuple[tuple[TableColumn, ...], tuple[TableColumn, ...]]] = {
    EVALUATIONS: (
        (_METHOD, _SEED, _AFTER, TableColumn("decisions", "whole"), _TASK),
        (
            *_RATE,
            *(TableColumn(name, "whole", optional=True) for name in ("ticks", CHOOSING)),
            TableColumn("task_name", "text", optional=True),
        ),
    ),
    COSTS: (
        (_METHOD, _SEED, _TASK),
        (
            *(TableColumn(name, "whole") for name in ("decisions", "selection_decisions", "ticks", "bytes")),
            TableColumn("cpu_s", "number"),
        ),
    ),
    SKILLS: ((_METHOD, _SEED, _TASK, _SKILL), _RATE),
    PLASTICITY: ((_METHOD, _SEED, _AFTER, TableColumn("boss", "text")), _RATE),
    DORMANT: ((_METHOD, _SEED, _AFTER, _SKILL), (TableColumn("share", "number"),)),
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
    keys, others = TABLES[name]
    if not table.num_rows:
        raise Where(source, remedy=REMEDY).error(f"rows of {name}", "none")
    columns: dict[str, Any] = {}
    for column in (*keys, *others):
        if column.name in table.column_names:
            columns[column.name] = _values(table.column(column.name), column, source)
        elif not column.optional:
            there = ", ".join(map(shown, table.column_names)) or "none"
            raise Where(source, remedy=REMEDY).error(
                f"a column {column.name} of {column.expectation}", f"the columns {there}"
            )
    # Imported here, as pyarrow: a study is planned, and its help printed, without either.
    import pandas as pd

    frame = pd.DataFrame(columns)
    _check_counts(frame, source)
    _check_unique(frame, [column.name for column in keys], source)
    return frame


def _values(array: pa.ChunkedArray, column: TableColumn, source: str) -> npt.NDArray[Any]:
    """Return a column's values in range; what is missing of an optional one is nan, or an empty text."""
    array = _typed(array, column, source)
    missing = np.array(array.is_null().to_numpy())
    values: npt.NDArray[Any] = (array.fill_null("") if column.kind == "text" else array).to_numpy()
    wrong = np.zeros(len(values), bool)
    if column.kind == "text":
        missing |= np.array([not text.strip() for text in values])
    else:
        missing |= np.isnan(values)
        wrong = ~missing & ~((values >= column.least) & (values <= _MOST))
        if column.kind == "whole":
            wrong |= ~missing & (values != np.floor(values))
    refused = wrong if column.optional else wrong | missing
    if refused.any():
        row = int(np.flatnonzero(refused)[0])
        value = values[[row]].tolist()[0]
        found = "none" if missing[row] else shown(value)
        expected = column.expectation
        if column.kind != "text" and not missing[row] and abs(value) > _MOST:
            expected = f"{expected}, at most {_MOST} above or below 0"
        raise Where(source, f"column {column.name}", REMEDY).error(expected, f"{found} in row {row}")
    if column.kind == "text":
        return values
    return values.astype(np.int64 if column.kind == "whole" and not column.optional else np.float64)


def _typed(array: pa.ChunkedArray, column: TableColumn, source: str) -> pa.ChunkedArray:
    """Return a column that holds what its kind is; a dictionary becomes its values."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        # Without a value its type is not known.
        return array.cast(pa.string() if column.kind == "text" else pa.float64())
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not (text if column.kind == "text" else number):
        found = f"values of type {array.type}"
        raise Where(source, f"column {column.name}", REMEDY).error(column.expectation, found)
    return array


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


def _check_unique(frame: pd.DataFrame, keys: list[str], source: str) -> None:
    again = np.flatnonzero(frame.duplicated(keys))
    if again.size:
        named = ", ".join(f"{key} {frame[key][again[0]]}" for key in keys)
        raise Where(source, remedy=REMEDY).error(f"one row for each {', '.join(keys)}", f"a second one of {named}")


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
