"""Whether fights suffice for `calibrate`: what they lack and mix is named, and every move that began is counted."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes.recordings import changed, rewritten
from soulsgraph.recordings.check import Coverage
from soulsgraph.recordings.files import read_recording, recording_files
from soulsgraph_envs.core.scenario import load_boss
from soulsgraph_envs.core.state import Raw


@pytest.fixture
def games(fights, tmp_path):
    """The recorded fights as if a running game had been fought in."""
    for path in recording_files(fights):
        table = pq.read_table(path)
        table = changed(table, "source", ["game"] * len(table))
        rewritten(path, tmp_path / path.name, header={"source": "game", "driver": "memory", "map": "m"}, table=table)
    return recording_files(tmp_path)


def test_fights_of_one_kind_are_all_right_and_their_moves_are_counted(games):
    coverage = Coverage.of(games[0].parent)
    assert (len(coverage.headers), coverage.obstacles(), coverage.missing) == (4, [], [])
    recordings = [read_recording(path) for path in games]
    assert coverage.to_dict()["seconds"] == pytest.approx(sum(0.1 * len(recording) for recording in recordings))
    titles = {move.id: move.title for move in load_boss("iudex-phase1").moves}
    begun = 0
    for recording in recordings:
        numbers, times = recording.raw[:, Raw.BOSS_ANIMATION], recording.raw[:, Raw.BOSS_ANIMATION_TIME_S]
        began = np.concatenate([[True], (np.diff(numbers) != 0) | (np.diff(times) < 0.0)])
        begun += int((began & np.isin(numbers, list(titles))).sum())
    assert sum(coverage.moves.values()) == begun
    single = Coverage.of(games[0])
    assert {*single.unseen} == {*titles.values()} - {*single.moves} != set()
    assert {*coverage.moves} <= {*titles.values()}
    assert {*coverage.unseen} == {*titles.values()} - {*coverage.moves}
    assert next(iter(coverage.lines())).endswith("of one kind")


def test_what_is_mixed_or_missing_is_named(games, fights):
    one, other, third, _ = games
    table = pq.read_table(other)
    table = changed(table, "phase", [2] * len(table))
    rewritten(other, other, header={"map": "n", "game_version": "1.2", "speed": 3.0}, table=table)
    table = pq.read_table(third)
    lacking = pa.nulls(len(table), pa.float64())
    rewritten(third, third, table=changed(changed(table, "stamina", lacking), "clock_s", lacking))
    coverage = Coverage.of(games[0].parent)
    assert coverage.obstacles() == [
        "maps mixed: m, n",
        "game versions mixed: unknown, 1.2",
        "speeds mixed: 1.0, 3.0",
        "phases mixed: 1, 2",
        "without stamina",
    ]
    assert coverage.missing == ["clock_s"]
    assert Coverage.of(one).obstacles() == ["at least 2 are needed"]
    assert Coverage.of(fights).obstacles() == ["4 simulated"]


def test_a_move_that_the_data_lack_is_counted_by_what_the_game_calls_it(games):
    path = games[0]
    table, idle = pq.read_table(path), load_boss("iudex-phase1").animations.idle.id
    rows = len(table)
    read = ["IdleBattle"] * 10 + ["Attack3099"] * 10 + [None] * 5 + ["WalkLeftBattle"] * 5
    read += ["Attack3099"] * (rows - len(read))
    table = changed(table, "boss_animation", [idle] * rows)
    table = changed(table, "boss_animation_time_s", np.arange(rows) * 0.1)
    rewritten(path, path, table=changed(table, "boss_animation_read", read))
    assert Coverage.of(path).moves == {"Attack3099": 2}


def test_damaged_fights_and_scenarios_that_are_gone_are_passed_over(games):
    games[0].write_bytes(b"PAR1")
    gone = str(games[1].with_name("gone.toml"))
    table = pq.read_table(games[1])
    rewritten(games[1], games[1], header={"scenario": gone}, table=changed(table, "scenario", [gone] * len(table)))
    for path in games[2:]:
        path.unlink()
    coverage = Coverage.of(games[0].parent)
    assert [games[0].name in problem for problem in coverage.problems] == [True]
    assert (len(coverage.headers), coverage.moves) == (1, {})
    assert not [*Coverage.of(games[0]).lines()]
