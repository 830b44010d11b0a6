"""Recordings as rows: what no running game has changes nothing, and fights that do not go together are refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from fakes.recordings import changed, read_all
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, ReadFight, boss_numbers, read_fights
from soulsgraph.recordings.files import write_table
from soulsgraph.recordings.format import CONTROLS, READINGS
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss

_BOSS = load_boss("iudex-phase1")
_KEPT = {column.name for column in (*READINGS.values(), *CONTROLS.values())}
_KEPT |= {"player_animation_name", "boss_animation_read", "phase", "clock_s", "player_hp_unfilled"}


@pytest.fixture(scope="module")
def fights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fights")
    record(Fighter.oracle("iudex-phase1", random=0.2), evaluation_seeds(2, 3), folder)
    return folder


def test_what_no_running_game_supplies_is_not_read(fights):
    for recording in read_all(fights):
        table = recording.table
        for field in table.schema:
            if field.nullable and field.name not in _KEPT:
                table = changed(table, field.name, pa.nulls(len(table), field.type))
        assert table["hit_areas"].null_count > 0
        whole, erased = ReadFight.of(recording), ReadFight.of(replace(recording, table=table))
        for name, values in vars(whole).items():
            assert_array_equal(getattr(erased, name), values, err_msg=name)


def test_fights_that_do_not_go_together_are_refused_by_what_differs(fights, tmp_path):
    assert len(read_fights(fights, _BOSS, simulated=True).fights) == 3
    record(Fighter.oracle("iudex-phase1"), evaluation_seeds(2, 1), tmp_path / "one")
    record(Fighter.oracle("vordt"), evaluation_seeds(2, 1), tmp_path / "other")
    for path, simulated, named in (
        (fights, False, "3 simulated"),
        (tmp_path / "one", True, "at least 2"),
        (tmp_path, True, "iudex-phase1, vordt"),
    ):
        with pytest.raises(SoulsGraphError, match=named):
            read_fights(path, _BOSS, simulated=simulated)


def test_an_animation_that_a_reader_takes_for_standing_keeps_what_the_game_said():
    unknown = {}
    idle = _BOSS.animations.idle.id
    ids = np.array([idle, idle, idle, 8, 300])
    read = np.array([None, "Attack3999", _BOSS.animations.idle.name, "Attack3012", None], dtype=object)
    numbers = boss_numbers(ids, read, _BOSS, unknown)
    assert numbers.tolist() == [idle, FIRST_UNKNOWN, idle, 8, FIRST_UNKNOWN + 1]
    assert unknown == {"Attack3999": FIRST_UNKNOWN, "animation 300": FIRST_UNKNOWN + 1}
    assert boss_numbers(ids[1:2], read[1:2], _BOSS, unknown).tolist() == [FIRST_UNKNOWN]


def test_an_unread_row_is_left_out(fights, tmp_path):
    for recording in read_all(fights):
        values = recording.table.column("boss_x_m").to_pylist()
        values[3] = None
        table = changed(recording.table, "boss_x_m", values)
        write_table(tmp_path, recording.header, dict(zip(table.column_names, table.columns, strict=True)))
    read, whole = (read_fights(folder, _BOSS, simulated=True) for folder in (tmp_path, fights))
    assert [len(one) + 1 for one in read.fights] == [len(one) for one in whole.fights]
    assert replace(read, fights=()) == replace(whole, fights=())
