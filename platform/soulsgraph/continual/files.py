"""The tables of continual learning, ours and anyone's: their columns, and the checks of a file that is read.

`evaluations` has a row for each task that was played at a moment of training: with `decisions` 0 the win rate R[after,
task] between two tasks, with more a point of the learning curve of the task that is trained. The others are of our own
runs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from soulsgraph.results.tables import frame_of, read_arrow
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import reading, shown

if TYPE_CHECKING:
    import pandas as pd

#: The method whose learning curve of a task is training it from scratch: b of forward transfer.
SCRATCH = "scratch"
EVALUATIONS, COSTS, SKILLS, PLASTICITY, DORMANT = "evaluations", "costs", "skills", "plasticity", "dormant"
#: The tables that units leave, and a study puts together.
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
        paths = {EVALUATIONS: path}
        if path.is_dir():
            paths = {name: path / "results" / f"{name}.parquet" for name in TABLES}
    there = {name: file for name, file in paths.items() if name == EVALUATIONS or file.is_file()}
    tables = {name: frame_of(read_arrow(file, "name a Parquet file")) for name, file in there.items()}
    return tables | {EVALUATIONS: check_frame(tables[EVALUATIONS], str(there[EVALUATIONS]))}


def check_frame(frame: pd.DataFrame, source: str = EVALUATIONS) -> pd.DataFrame:
    """Return the columns of evaluations that a frame has, checked; what is missing of an optional one is nan, or "".

    Raises:
        SoulsGraphError: if a column is missing or there twice, a value is missing or out of range, a task lacks in the
            sequence, or two rows are of the same moment.
    """
    # Imported here: a study is planned, and its help printed, without it.
    import pandas as pd

    where = Where(source)
    names = [name for name in ("method", *_LEAST, "task_name") if name not in _OPTIONAL or name in frame]
    if frame.empty or not {*names} <= {*frame} or not frame.columns.is_unique:
        found = f"{len(frame)} rows of {', '.join(map(shown, frame.columns))}"
        raise where.error(f"rows of evaluations with one column each of {', '.join(names)}", found)
    frame = (
        frame[names].reset_index(drop=True).astype({name: object for name in ("method", "task_name") if name in frame})
    )
    for name in names:
        column, optional = frame[name], name in _OPTIONAL
        if name in _LEAST:
            expected = "whole numbers" + (f" from {_LEAST[name]} on" if math.isfinite(_LEAST[name]) else "")
            numbers = pd.to_numeric(column, errors="coerce").astype(float)
            # A comparison with what is missing does not hold.
            wrong = ~((numbers >= _LEAST[name]) & (numbers % 1 == 0)) & ~(optional & column.isna())
            frame[name] = numbers
        else:
            expected, frame[name] = "text", column.where(column.notna(), "")
            wrong = ~frame[name].map(
                lambda text, optional=optional: isinstance(text, str) and (optional or text.strip() != "")
            )
        if wrong.any():
            row = int(wrong.argmax())
            raise where.at(f"column {name}").error(expected, f"{shown(column.iloc[row])} in row {row}")
        if name in _LEAST and not optional:
            frame[name] = frame[name].astype(int)
    tasks = frame["task"].nunique()
    defects = {
        "at most as many wins as episodes": frame["wins"] > frame["episodes"],
        "the tasks from 1 on, none left out": frame["task"] > tasks,
        "at most as many tasks finished as there are": frame["after"] > tasks,
        "with decisions above 0 the task that is trained, after + 1": (frame["decisions"] > 0)
        & (frame["task"] != frame["after"] + 1),
        f"one row for each {', '.join(_KEYS)}": frame.duplicated([*_KEYS]),
    }
    for expected, rows in defects.items():
        if rows.any():
            row = int(rows.argmax())
            found = ", ".join(f"{name} {value}" for name, value in frame.loc[row].items())
            raise where.at(f"row {row}").error(expected, found)
    return frame
