"""Tables of continual learning are checked at the door: every defect is named, and no file gets a traceback."""

import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes.continual import InventedRun
from soulsgraph.continual.files import SCRATCH, TABLES, check_frame, read_tables
from soulsgraph.continual.scoring import score
from soulsgraph_envs.core.errors import SoulsGraphError

RUN = InventedRun.draw(("kept", "newest", SCRATCH), seeds=2, tasks=3)
#: The row of a point of the second task's learning curve.
_POINT = RUN.evaluations.query("decisions > 0 and task == 2").index[0]


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
    ("frame", "found"),
    [
        (_frame().drop(columns="wins"), "wins"),
        (_frame().iloc[:0], "evaluations"),
        (pd.concat([_frame(), _frame()[["wins"]]], axis=1), "wins"),
        (_frame(method=1), "method"),
        (_frame(seed="a"), "seed"),
        (_with(4, wins=0.5), "wins.*0.5.*row 4"),
        (_with(4, wins=np.nan), "wins.*nan.*row 4"),
        (_with(4, wins=-1), "wins.*from 0 on.*-1.*row 4"),
        (_with(4, wins=201), "row 4.*wins 201, episodes 200"),
        (_with(4, episodes=0), "episodes.*from 1 on.*row 4"),
        (_with(4, method=" "), "method.*row 4"),
        (_with(4, task=0), "task"),
        (_with(4, task=2**50), "1125899906842624"),
        (_with(_POINT, task=3), "after 1, decisions .* task 3"),
        (_with(4, ticks=-5), "ticks"),
        (pd.concat([_frame(), _frame().iloc[[7]]]), "method, seed, after, decisions, task"),
        (_frame(after=_frame()["after"] + 1), "after 4"),
        (_without("task == 2"), "task 3"),
    ],
)
def test_every_defect_of_evaluations_is_named(frame, found):
    with pytest.raises(SoulsGraphError, match=found) as refused:
        check_frame(frame)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("left_out", "lacking"),
    [
        ("after == 3 and task == 2", {"average_performance", "forgetting", "backward_transfer"}),
        ("after == 2 and task == 1", {"forgetting_from_peak", "meal_forgetting", "cora_zero_shot_transfer"}),
        ("after == 2 and task == 2", {"own_performance", "forgetting", "plasticity_slope"}),
        ("after == 0 and decisions == 0", {"zero_shot_transfer"}),
        ("decisions > 0 and after == 1", {"forward_transfer", "forward_transfer_ticks", "meal_forward_transfer"}),
    ],
)
def test_a_metric_is_not_defined_for_a_seed_that_lacks_what_it_needs(left_out, lacking):
    whole, part = score(RUN.evaluations), score(_without(f"{left_out} and method == 'newest' and seed == 1"))
    assert part.methods == whole.methods
    for (name, method), one in whole.scores.items():
        other = part.scores[name, method]
        if method == "newest" and name in lacking:
            assert other.values.index.tolist() == [0], name
            assert any(note.startswith("newest") and "of seed 1" in note for note in part.notes)
        elif method != "newest":
            assert other.values.equals(one.values), name


def test_what_other_programs_write_is_read_alike(tmp_path):
    path = tmp_path / "theirs.parquet"
    table = pa.Table.from_pandas(_frame(extra=1.5), preserve_index=False)
    wide = table.set_column(0, "method", table.column("method").dictionary_encode())
    wide = wide.set_column(1, "seed", table.column("seed").cast(pa.float32()))
    wide = wide.set_column(wide.schema.get_field_index("wins"), "wins", table.column("wins").cast(pa.uint8()))
    pq.write_table(wide.select(wide.column_names[::-1]), path)
    assert score(read_tables(path)["evaluations"]).to_dict() == score(_frame()).to_dict()


def test_optional_columns_may_lack_values_between_tasks():
    frame = _frame()
    ticks, names = frame["ticks"].where(frame["decisions"] > 0), frame["task_name"].where(frame["decisions"] == 0)
    part = score(check_frame(frame.assign(ticks=ticks, task_name=names)))
    assert part.to_dict() == score(frame).to_dict()
    assert part.task_names == ("boss 1", "boss 2", "boss 3")
    bare = score(check_frame(frame.assign(ticks=None, task_name=None)))
    assert bare.task_names == ("task 1", "task 2", "task 3")
    assert bare.scores["forward_transfer_ticks", "kept"].values.empty


def test_a_sequence_played_at_every_tenth_task_alone_is_read():
    frame = _frame()
    near = (frame["task"] == frame["after"]) | (frame["task"] == frame["after"] + 1) | (frame["after"] == 3)
    scores = score(frame[near])
    assert np.isnan(scores.trajectories[0].rates[1, 2])
    kept = {name for (name, method), one in scores.scores.items() if method == "kept" and len(one.values)}
    assert {"average_performance", "forgetting", "forward_transfer"} <= kept
    assert not kept & {"cora_isolated_forgetting", "forgetting_from_peak", "meal_forgetting"}


def test_a_folder_has_the_tables_that_are_there(tmp_path):
    folder = RUN.write(tmp_path / "run")
    assert {*read_tables(folder)} == {*TABLES}
    (folder / "results" / "costs.parquet").unlink()
    assert "costs" not in read_tables(folder)
    shutil.rmtree(folder / "results")
    with pytest.raises(SoulsGraphError, match=r"evaluations\.parquet"):
        read_tables(folder)
