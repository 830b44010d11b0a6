"""Recordings as rows: what no running game has changes nothing, and fights that do not go together are refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from soulsgraph.calibrate.calibration import calibrate
from soulsgraph.calibrate.rows import FIRST_UNKNOWN, boss_numbers, read_fights
from soulsgraph.recordings.files import read_recording, recording_files, write_table
from soulsgraph.recordings.format import CONTROLS, READINGS
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_player

_BOSS = load_boss("iudex-phase1")
_KEPT = {column.name for column in (*READINGS.values(), *CONTROLS.values())}
_KEPT |= {"player_animation_name", "boss_animation_read", "phase", "clock_s", "player_hp_unfilled"}


@pytest.fixture(scope="module")
def fights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fights")
    record(Fighter.oracle("iudex-phase1", random=0.2), evaluation_seeds(2, 3), folder)
    return folder


def _rewritten(fights, folder, change):
    for path in recording_files(fights):
        recording = read_recording(path)
        table = change(recording)
        write_table(folder, recording.header, dict(zip(table.column_names, table.columns, strict=True)))
    return folder


def _erased(recording):
    table = recording.table
    for place, field in enumerate(table.schema):
        if field.nullable and field.name not in _KEPT:
            table = table.set_column(place, field, pa.nulls(len(table), field.type))
    return table


def test_what_no_running_game_supplies_changes_no_value(fights, tmp_path):
    player = load_player("knight")
    whole = calibrate(read_fights(fights, _BOSS, simulated=True), _BOSS, player)
    erased = _rewritten(fights, tmp_path / "erased", _erased)
    assert read_recording(recording_files(erased)[0]).table["hit_areas"].null_count > 0
    assert calibrate(read_fights(erased, _BOSS, simulated=True), _BOSS, player).to_dict() == whole.to_dict()


def _phase(recording, number):
    place = recording.table.column_names.index("phase")
    field = recording.table.schema.field(place)
    return recording.table.set_column(place, field, pa.array([number] * len(recording.table), field.type))


def test_fights_that_do_not_go_together_are_refused_by_what_differs(fights, tmp_path):
    assert len(read_fights(fights, _BOSS, simulated=True).fights) == 3
    numbers = iter((1, 2, 2))
    mixed = _rewritten(fights, tmp_path / "mixed", lambda recording: _phase(recording, next(numbers)))
    two = tmp_path / "two"
    _rewritten(fights, two / "a", lambda recording: recording.table)
    record(Fighter.oracle("vordt"), evaluation_seeds(2, 1), two / "b")
    for path, simulated, named in (
        (fights, False, "3 simulated"),
        (recording_files(fights)[0], True, "at least 2"),
        (mixed, True, "1, 2"),
        (two, True, "iudex-phase1, vordt"),
    ):
        with pytest.raises(SoulsGraphError, match=named):
            read_fights(path, _BOSS, simulated=simulated)


def test_an_animation_that_a_reader_takes_for_standing_keeps_what_the_game_said():
    unknown: dict[str, int] = {}
    idle = _BOSS.animations.idle.id
    ids = np.array([idle, idle, idle, 8, 300])
    read = np.array([None, "Attack3999", _BOSS.animations.idle.name, "Attack3012", None], dtype=object)
    numbers = boss_numbers(ids, read, _BOSS, unknown)
    assert numbers.tolist() == [idle, FIRST_UNKNOWN, idle, 8, FIRST_UNKNOWN + 1]
    assert unknown == {"Attack3999": FIRST_UNKNOWN, "animation 300": FIRST_UNKNOWN + 1}
    again = boss_numbers(ids[1:2], read[1:2], _BOSS, unknown)
    assert again.tolist() == [FIRST_UNKNOWN]


def test_an_unread_row_is_left_out(fights, tmp_path):
    def holed(recording):
        place = recording.table.column_names.index("boss_x_m")
        field = recording.table.schema.field(place)
        values = recording.table.column(place).to_pylist()
        values[3] = None
        return recording.table.set_column(place, field, pa.array(values, field.type))

    read = read_fights(_rewritten(fights, tmp_path / "holed", holed), _BOSS, simulated=True)
    whole = read_fights(fights, _BOSS, simulated=True)
    assert [len(one) + 1 for one in read.fights] == [len(one) for one in whole.fights]
    assert replace(read, fights=()) == replace(whole, fights=())
