"""Tables of continual learning are checked at the door: every defect is named, and no file gets a traceback."""

import re
import shutil
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.continual import InventedRun
from soulsgraph.continual.files import (
    EVALUATIONS,
    SCRATCH,
    TABLES,
    check_frame,
    read_folder,
    read_results,
    trajectories,
)
from soulsgraph.continual.scoring import score, score_file
from soulsgraph_envs.core.errors import SoulsGraphError

RUN = InventedRun.draw(("kept", "newest", SCRATCH), seeds=2, tasks=3)


def _frame(**columns):
    return RUN.evaluations.assign(**columns)


def _with(row, **values):
    """Return the evaluations with one row changed."""
    frame = RUN.evaluations.copy()
    for name, value in values.items():
        frame[name] = frame[name].astype(object)
        frame.loc[row, name] = value
    return frame.infer_objects()


def _without(chosen):
    frame = RUN.evaluations
    return frame[~frame.eval(chosen)]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (_frame().drop(columns="wins"), "expected a column wins of whole numbers from 0 on, found the columns"),
        (_frame().iloc[:0], "expected rows of evaluations, found none"),
        (_frame(method=1), "column method: expected text, found values of type int64"),
        (_frame(seed="a"), "column seed: expected whole numbers"),
        (_frame(wins=True), "column wins: expected whole numbers from 0 on, found values of type bool"),
        (_with(4, wins=0.5), "column wins: expected whole numbers from 0 on, found 0.5 in row 4"),
        (_with(4, wins=np.nan), "column wins: expected whole numbers from 0 on, found none in row 4"),
        (_with(4, wins=-1), "column wins: expected whole numbers from 0 on, found -1 in row 4"),
        (_with(4, wins=201), "column wins: expected at most as many as episodes, found 201 of 200 in row 4"),
        (_with(4, episodes=0), "column episodes: expected whole numbers from 1 on, found 0 in row 4"),
        (_with(4, seed=2**60), "column seed: expected whole numbers"),
        (_with(4, method=" "), "column method: expected text, found none in row 4"),
        (_with(4, task=0), "column task: expected whole numbers from 1 on, found 0"),
        (_with(4, task=2**50), "expected every task from 1 to 1125899906842624, found no row of task 4"),
        (_with(4, ticks=-5), "column ticks: expected whole numbers from 0 on"),
        (pd.concat([_frame(), _frame().iloc[[7]]]), "expected one row for each method, seed, after, decisions, task"),
        (_frame(after=_frame()["after"] + 1), "column after: expected at most the 3 tasks that are played, found 4"),
        (_without("task == 2"), "expected every task from 1 to 3, found no row of task 2"),
        (_without("after == 3 and task == 2 and method == 'kept'"), "method kept, seed 0: .*after 3, found no R.3, 2."),
        (_without("after == 2 and task == 1 and seed == 1"), "seed 1: expected R.2, 1., which seed 0 has, found none"),
        (_without("after == 2 and seed == 1"), "end of each task's own training, found no R.2, 2."),
        (_without("after == 0 and seed == 1 and decisions == 0"), "seed 1: expected R.0, 1., which seed 0 has"),
        (
            _without("decisions > 0 and after == 1 and seed == 0"),
            "expected a learning curve of every task, found none of",
        ),
        (_without("decisions > 0 and seed == 1"), "expected learning curves, as of seed 0, or none of either"),
    ],
)
def test_every_defect_of_evaluations_is_named(frame, message):
    with pytest.raises(SoulsGraphError, match=message) as refused:
        score(frame)
    assert len(str(refused.value).splitlines()) == 1
    assert "correct the file" in str(refused.value)


def test_a_hole_in_a_row_of_r_is_named():
    frame = InventedRun.draw(("kept",), seeds=1, tasks=5).evaluations
    holed = frame[(frame["after"] != 3) | (frame["task"] != 1)]
    with pytest.raises(
        SoulsGraphError, match=r"kept, seed 0: expected the win rate in every task after 3, found no R\[3, 1"
    ):
        score(holed)


def test_a_point_of_another_task_than_the_one_that_is_trained_is_refused():
    frame = _frame()
    row = frame.index[(frame["decisions"] > 0) & (frame["task"] == 2)][0]
    with pytest.raises(SoulsGraphError, match=r"the task that is trained, after \+ 1, found task 3 after 1"):
        score(_with(row, task=3))


def test_what_other_programs_write_is_read_alike(tmp_path):
    expected, path = score(_frame()).by_seed(), tmp_path / "theirs.parquet"
    table = pa.Table.from_pandas(_frame(extra=1.5), preserve_index=False)
    wide = table.set_column(0, "method", table.column("method").dictionary_encode())
    wide = wide.set_column(1, "seed", table.column("seed").cast(pa.float32()))
    wide = wide.set_column(wide.schema.get_field_index("wins"), "wins", table.column("wins").cast(pa.uint8()))
    pq.write_table(wide.select(wide.column_names[::-1]), path)
    found = score_file(path).by_seed()
    assert found == expected


def test_optional_columns_may_lack_values_between_tasks():
    frame = _frame()
    expected = score(frame).by_seed()
    ticks = frame["ticks"].where(frame["decisions"] > 0)
    assert score(frame.assign(ticks=ticks)).by_seed() == expected
    names = frame["task_name"].where(frame["decisions"] == 0)
    assert score(frame.assign(task_name=names)).task_names == ("boss 1", "boss 2", "boss 3")
    bare = score(frame.assign(ticks=None, task_name=None))
    assert bare.task_names == ("task 1", "task 2", "task 3")
    assert not bare.scores["forward_transfer_ticks", "kept"].values.seeds


def test_two_columns_of_a_name_and_mixed_types_are_named(tmp_path):
    path = tmp_path / "twice.parquet"
    table = pa.Table.from_pandas(_frame(), preserve_index=False)
    pq.write_table(table.append_column("wins", table.column("wins")), path)
    with pytest.raises(
        SoulsGraphError, match=r"expected a Parquet file of results, found: Multiple matches .*\(wins\)"
    ):
        read_results(path)
    for frame in (_with(3, wins="many"), pd.concat([_frame(), _frame()[["wins"]]], axis=1)):
        with pytest.raises(SoulsGraphError, match="expected a frame with one type a column"):
            check_frame(frame)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "expected a Parquet file of results, found none"),
        (lambda path: path.write_bytes(b""), "expected a Parquet file of results, found:"),
        (lambda path: path.write_text("method,seed"), "expected a Parquet file of results, found:"),
        (lambda path: path.mkdir(), "expected to read it, found: Is a directory"),
    ],
)
def test_no_file_an_empty_one_and_a_folder_are_refused_in_one_line(tmp_path, make, message):
    path = tmp_path / "evaluations.parquet"
    make(path)
    with pytest.raises(SoulsGraphError, match=re.escape(message)):
        score_file(path)


def test_a_column_whose_name_is_no_text_is_refused_in_one_line(tmp_path):
    path = tmp_path / "evaluations.parquet"
    RUN.evaluations.to_parquet(path, index=False)
    path.write_bytes(path.read_bytes().replace(b"task_name", b"\xff\xfesk_name"))
    with pytest.raises(SoulsGraphError, match=r"expected a Parquet file of results, found: .*can't decode"):
        read_results(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "evaluations.parquet"
    RUN.evaluations.to_parquet(path, index=False, compression=None)
    return path, path.read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_but_never_a_traceback(written, data):
    path, content = written
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(damaged))
    with suppress(SoulsGraphError):
        score_file(path)


def test_a_sequence_played_at_every_tenth_task_alone_is_read():
    frame = _frame()
    near = (frame["task"] == frame["after"]) | (frame["task"] == frame["after"] + 1) | (frame["after"] == 3)
    found = trajectories(check_frame(frame[near]))
    assert np.isnan(found[0].rates[1, 2])
    scores = score(frame[near])
    kept = {name for (name, method), one in scores.scores.items() if method == "kept" and one.values.seeds}
    assert {"average_performance", "forgetting", "forward_transfer"} <= kept
    assert not kept & {"cora_isolated_forgetting", "forgetting_from_peak", "meal_forgetting"}


def test_a_triangle_of_tasks_seen_so_far_is_read():
    frame = _frame()
    seen = frame[(frame["task"] <= frame["after"]) & (frame["decisions"] == 0)]
    kept = {name for (name, method), one in score(seen).scores.items() if method == "kept" and one.values.seeds}
    assert {"forgetting", "meal_forgetting"} <= kept
    assert not kept & {"forward_transfer", "zero_shot_transfer", "forgetting_from_peak"}


def test_a_folder_has_the_tables_that_are_there(tmp_path):
    folder = RUN.write(tmp_path / "run")
    assert read_folder(folder).keys() == TABLES.keys()
    (folder / "results" / "costs.parquet").unlink()
    assert "costs" not in read_folder(folder)
    shutil.rmtree(folder / "results")
    with pytest.raises(SoulsGraphError, match=r"evaluations.parquet: expected a Parquet file of results, found none"):
        read_folder(folder)


@pytest.mark.parametrize("name", [name for name in TABLES if name != EVALUATIONS])
def test_every_table_of_a_run_is_checked(name):
    frame = RUN.tables[name]
    assert len(check_frame(frame, name)) == len(frame)
    with pytest.raises(SoulsGraphError, match="a second one of method kept"):
        check_frame(pd.concat([frame, frame.iloc[[0]]]), name)
    column = "share" if name == "dormant" else "decisions" if name == "costs" else "wins"
    with pytest.raises(SoulsGraphError, match=f"column {column}"):
        check_frame(frame.assign(**{column: 1e9 if name == "dormant" else -1}), name)
