import os
import shutil
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from fakes.fleet_here import GatewayHere, playing
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.gateway.status import (
    REFUSED_FOR_S,
    STATUS_FILE,
    FleetStatus,
    GameStatus,
    StatusWriter,
    read_status,
)
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Health, Hello
from soulsgraph_clusters.fleet.protocol.settings import PC, FleetSettings, State
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

NUMBERS = DQNHyperparameters(budget=10**9, buffer_size=1000)
TASK = StageTask("iudex-phase1", {"camera": "camera"}, {"camera": NUMBERS}, 10.0)


@pytest.fixture
def here(tmp_path):
    with GatewayHere(tmp_path, TASK) as here:
        yield here


def _joined(here, said_s=0.0, **health):
    connection = Connection(Hello(pc="attic", game="1", boot="00", lanes=1), time.monotonic())
    _says(connection, said_s, **health)
    here.gateway.connections.begin(connection)
    return connection


def _says(connection, at_s, **health):
    connection.health, connection.health_s = Health(**health), at_s


def test_rates_are_those_between_what_the_game_said_and_not_between_two_looks(here):
    connection = _joined(here, 100.0, ticks=1000, metrics={"speed": 3.0, "reset_s/reload": 5.0})
    here.status.describe(1)
    _says(connection, 110.0, ticks=1210, metrics={"speed": 3.0, "reset_s/reload": 7.0, "reset_s/aim": 1.0})
    here.status.describe(1)
    (game,) = here.status.describe(1).games
    assert game.ticks_per_s == pytest.approx(21.0)
    assert game.share_of_ideal == pytest.approx(0.7)
    assert game.reset_share == pytest.approx({"reload": 0.2, "aim": 0.1})


def test_a_rate_forgets_what_is_older_than_the_window(here):
    connection = _joined(here)
    for second in range(1, 200):
        _says(connection, float(second), ticks=10 * second if second < 100 else 990)
        (game,) = here.status.describe(1).games
        if second == 90:
            assert game.ticks_per_s == pytest.approx(10.0)
    assert game.ticks_per_s == 0.0


def test_no_rate_counts_from_before_a_game_said_anything(here):
    connection = _joined(here)
    here.status.describe(1)
    _says(connection, 5000.0, ticks=70_000)
    assert here.status.describe(1).games[0].ticks_per_s == 0.0
    _says(connection, 5001.0, ticks=70_010)
    assert here.status.describe(1).games[0].ticks_per_s == pytest.approx(10.0)


def test_a_game_that_was_started_again_begins_anew(here):
    connection = _joined(here, 1.0, ticks=10_000)
    here.status.describe(1)
    connection.hello.boot = "01"
    _says(connection, 2.0, ticks=3)
    assert here.status.describe(1).games[0].ticks_per_s == 0.0


def test_names_and_numbers_that_a_pc_sends_are_bounded(here):
    metrics = {f"reset_s/{number:04d}{'x' * 500}": 1.0 for number in range(1000)}
    _joined(here, 1.0, metrics={"speed": float("nan"), "lateness_p99_ms": float("inf"), **metrics})
    (game,) = here.status.describe(1).games
    assert (game.ideal_ticks_per_s, game.lateness_p99_ms) == (0.0, 0.0)
    assert len(game.reset_s) == 32
    assert max(map(len, game.reset_s)) == 80


def test_the_file_holds_what_was_described(here):
    _joined(here, 1.0, ticks=5, metrics={"speed": 1.0, "reset_s/aim": 2.0, "lost_episodes/the game is gone": 3.0})
    written = here.status.update(7, always=True)
    found = read_status(here.journal.folder.parent)
    assert (here.journal.folder / STATUS_FILE).exists()
    assert found == written
    assert found.games[0].lost_episodes == {"the game is gone": 3}
    assert found.games[0].metrics["lost_episodes/the game is gone"] == 3.0


def test_a_clock_that_is_set_makes_no_status_older_or_younger(here, monkeypatch):
    earlier = here.journal.folder.with_name("earlier")
    earlier.mkdir()
    here.status.update(1, always=True)
    shutil.copy(here.journal.folder / STATUS_FILE, earlier / STATUS_FILE)
    for moved_s in (-3600.0, -60.0, 60.0, 3600.0):
        now = time.time() + moved_s
        monkeypatch.setattr("time.time", lambda now=now: now)
        here.status.update(2, always=True)
        monkeypatch.undo()
        # The clock was set back between two stages: the file of the one before is younger by it.
        os.utime(earlier / STATUS_FILE, (time.time() + 7200.0,) * 2)
        found = read_status(here.journal.folder.parent)
        assert found.weights_version == 2
        assert found.age_s < 1800.0, "counted since the machine was started"


def test_of_another_machines_status_both_clocks_are_asked():
    found = FleetStatus("camera", "a1", time.time() + 60.0, 1, 0, boot="another")
    assert not found.is_this_machines
    assert 50.0 < found.age_s < 70.0


@pytest.mark.parametrize(("took_s", "next_s"), [(0.001, 1.0), (0.05, 2.5), (60.0, 4.0)])
def test_what_takes_long_to_write_is_written_less_often_up_to_a_bound(here, monkeypatch, took_s, next_s):
    now_s, spent_s = [time.monotonic() + 100.0], count(0.0, took_s)
    monkeypatch.setattr(
        "soulsgraph_clusters.fleet.gateway.status.time",
        SimpleNamespace(monotonic=lambda: now_s[0], thread_time=lambda: next(spent_s), time=time.time),
    )
    assert here.status.update(1) is not None
    now_s[0] += next_s - 0.01
    assert here.status.update(1) is None
    now_s[0] += 0.02
    assert here.status.update(1) is not None


def test_a_game_says_how_late_its_ticks_are_and_what_its_resets_and_itself_take(here):
    here.play(GameSettings(driver="simulator", speed=20.0))

    def playing():
        # Where the first report comes late, what is played until the second seems to take less time.
        return next((game for game in here.status.describe(1).games if 0 < game.ticks_per_s < 220.0), None)

    game = until(playing, "a game that plays as fast as it may")
    assert game.ideal_ticks_per_s == pytest.approx(200.0)
    assert game.lateness_p99_ms > 0
    assert 0 < game.reset_s["start"] < 60.0
    assert game.cpu_s > 0


def _row(here, name):
    return next((game for game in here.status.describe(1).games if game.name == name), None)


def test_a_game_that_is_gone_keeps_its_last_row_and_says_for_how_long_it_is_silent(here):
    here.publish()
    with playing(here.head(), here.folder / "attic", GameSettings(driver="simulator", speed=20.0, lanes=2)):
        # A decision is finished some time after the tick that began it.
        until(
            lambda: (row := _row(here, "attic/1")) and row.ticks_per_s > 0 and row.finished > 0,
            "a game that plays and has finished decisions",
        )
        last = _row(here, "attic/1")
        assert last.connected
    until(lambda: not here.gateway.connections.live, "the end of its stream")
    gone = _row(here, "attic/1")
    assert (gone.state, gone.connected, gone.lanes, gone.driver) == ("lost", False, 2, "simulator")
    assert gone.ticks >= last.ticks > 0
    assert gone.finished >= last.finished > 0
    assert gone.ticks_per_s == 0.0
    assert gone.metrics["connected"] == 0.0
    until(lambda: _row(here, "attic/1").silent_s > gone.silent_s + 0.5, "a longer silence")
    here.play(GameSettings(driver="simulator", speed=20.0, lanes=2))
    until(lambda: _row(here, "attic/1").connected, "the game that is back")
    assert [game.name for game in here.status.describe(1).games] == ["attic/1"]


def test_why_a_game_is_gone_stands_in_its_row(here):
    connection = _joined(here, 1.0, ticks=5, note="as it plays")
    connection.reason = "silent for 5 s"
    connection.close()
    assert (_row(here, "attic/1").state, _row(here, "attic/1").note) == ("lost", "silent for 5 s")
    here.gateway.connections.end(connection)
    assert (_row(here, "attic/1").state, _row(here, "attic/1").ticks) == ("lost", 5)


def test_another_gateway_of_the_stage_remembers_the_games_of_the_one_before(here):
    _joined(here, 1.0, ticks=5)
    written = here.status.update(1, always=True)
    later = StatusWriter(here.admission, Connections())
    (game,) = later.describe(1).games
    assert (game.name, game.state, game.ticks) == ("attic/1", "lost", 5)
    assert game.silent_s >= written.games[0].silent_s
    (here.journal.folder / STATUS_FILE).write_text("[")
    assert StatusWriter(here.admission, Connections()).describe(1).games == ()


def test_games_stand_as_they_were_when_the_stage_is_over(here):
    connection = _joined(here, 1.0, state="playing")
    here.status.keep()
    connection.close()
    here.gateway.connections.end(connection)
    assert (_row(here, "attic/1").state, _row(here, "attic/1").connected) == ("playing", True)


def test_a_pc_of_the_file_that_never_came_has_a_row(tmp_path):
    settings = FleetSettings(pcs={"attic": PC(), "cellar": PC()})
    with GatewayHere(tmp_path, TASK, settings) as here:
        _joined(here, 1.0)
        row = _row(here, "cellar")
        assert (row.state, row.connected, row.driver) == ("not seen", False, "")
        until(lambda: _row(here, "cellar").silent_s > row.silent_s + 0.2, "a longer absence")
        assert set(row.metrics) == {"connected", "silent_s"}
        assert _row(here, "attic") is None
        assert read_status(here.journal.folder.parent) is None
        here.status.update(1, always=True)
        assert [game.name for game in read_status(here.journal.folder.parent).games] == ["attic/1", "cellar"]


def test_the_latest_refusal_of_a_pc_has_a_row_until_it_plays(tmp_path):
    with GatewayHere(tmp_path, TASK, FleetSettings(pcs={"attic": PC()})) as here:
        simulator = GameSettings(driver="simulator", speed=20.0)
        here.play(simulator, "stranger")
        until(lambda: _row(here, "stranger"), "a refusal")
        row = _row(here, "stranger")
        assert (row.state, row.connected) == ("refused", False)
        assert "expected a PC of the fleet's file, found stranger" in row.note
        here.gateway.connections.refusals["attic"] = "an old version", time.monotonic()
        assert _row(here, "attic").note == "an old version"
        here.play(simulator, "attic")
        # The game is there a moment before its PC's refusal is forgotten.
        until(lambda: _row(here, "attic/1") and _row(here, "attic") is None, "the game in the refusal's place")


def test_a_game_that_another_gateway_lost_keeps_its_last_row(here):
    row = GameStatus("cellar/1", "simulator", 4, "playing", "", 9.0, 10.0, 0.0, 0.5, 0, 700, ticks=900)
    there = [row]
    status = StatusWriter(here.admission, here.gateway.connections, lambda: there)
    _joined(here)
    assert {one.name: one.state for one in status.describe(1).games} == {"attic/1": "", "cellar/1": "playing"}
    there.clear()
    lost = {one.name: one for one in status.describe(1).games}["cellar/1"]
    assert (lost.state, lost.connected, lost.ticks, lost.finished, lost.ticks_per_s) == (
        State.LOST,
        False,
        900,
        700,
        0.0,
    )
    assert 0.5 <= lost.silent_s < 60.0
    there.append(replace(row, ticks=950))
    back = {one.name: one for one in status.describe(1).games}["cellar/1"]
    assert (back.state, back.ticks) == ("playing", 950)


def test_the_gateway_that_heard_a_lost_game_last_says_how_it_was(here):
    connection = _joined(here, ticks=5)
    connection.heard_s = time.monotonic() - 100.0
    connection.close()
    here.gateway.connections.end(connection)
    there = [GameStatus("attic/1", "simulator", 1, "playing", "", 9.0, 10.0, 0.0, 0.5, 0, 700, ticks=900)]
    status = StatusWriter(here.admission, here.gateway.connections, lambda: there)
    status.describe(1)
    there.clear()
    (lost,) = status.describe(1).games
    assert (lost.state, lost.ticks) == (State.LOST, 900)


def test_games_of_all_gateways_stand_as_they_were_when_the_stage_is_over(here):
    connection = _joined(here, 1.0, state="playing")
    there = [GameStatus("cellar/1", "simulator", 4, "playing", "", 9.0, 10.0, 0.0, 0.5, 0, 700, ticks=900)]
    status = StatusWriter(here.admission, here.gateway.connections, lambda: there)
    status.keep()
    connection.close()
    there.clear()
    # The gateway that stops asks for it once more.
    status.keep()
    assert {one.name: one.state for one in status.describe(1).games} == {"attic/1": "playing", "cellar/1": "playing"}


def _counted(here, boot, finished, **lost):
    """Let another process of attic's game say what it finished and lost, and return its row."""
    for connection in here.gateway.connections.live:
        connection.close()
        here.gateway.connections.end(connection)
    connection = Connection(Hello(pc="attic", game="1", boot=boot, lanes=1), time.monotonic())
    _says(connection, 1.0, finished_decisions=finished, lost_decisions=lost)
    here.gateway.connections.begin(connection)
    return _row(here, "attic/1")


def test_neither_another_process_nor_another_gateway_begins_what_was_finished_anew(here):
    def counts(row):
        return row.finished, dict(row.lost)

    assert counts(_counted(here, "a1", 700, doubtful=5)) == (700, {"doubtful": 5})
    assert counts(_counted(here, "b2", 0)) == (700, {"doubtful": 5})
    row = _counted(here, "b2", 40, doubtful=1, damaged=2)
    assert counts(row) == (740, {"doubtful": 6, "damaged": 2})
    assert (row.boot, row.earlier_finished) == ("b2", 700)
    here.status.update(1, always=True)
    here.status = StatusWriter(here.admission, here.gateway.connections)
    assert counts(_row(here, "attic/1")) == (740, {"doubtful": 6, "damaged": 2})
    assert counts(_counted(here, "b2", 50, doubtful=1, damaged=2)) == (750, {"doubtful": 6, "damaged": 2})
    assert counts(_counted(here, "c3", 9)) == (759, {"doubtful": 6, "damaged": 2})
    there = [GameStatus("cellar/1", "simulator", 4, "playing", "", 9.0, 10.0, 0.0, 0.5, 0, 700, boot="d4")]
    status = StatusWriter(here.admission, here.gateway.connections, lambda: there)
    status.describe(1)
    there[:] = [replace(there[0], boot="e5", finished=3)]
    assert {one.name: one.finished for one in status.describe(1).games}["cellar/1"] == 703


def test_nothing_plays_or_is_refused_in_the_last_status_of_a_stage_that_is_over(tmp_path):
    with GatewayHere(tmp_path, TASK, FleetSettings(pcs={"attic": PC(), "cellar": PC()})) as here:
        _joined(here, 1.0, state="playing", finished_decisions=7, waiting_chunks=2)
        for who in ("cellar", "10.0.0.7"):
            here.gateway.connections.refusals[who] = "an old version", time.monotonic()
        here.status.end(3)
        games = {game.name: game for game in read_status(here.journal.folder.parent).games}
        assert games.keys() == {"attic/1", "cellar"}
        last = games["attic/1"]
        assert (last.state, last.connected, last.ticks_per_s) == ("stage over", False, 0.0)
        assert (last.finished, last.waiting_chunks) == (7, 2)
        assert games["cellar"].state == "not seen"
        assert games["cellar"].note == "it was refused, and does not try any more: an old version"


def test_who_was_refused_and_does_not_try_any_more_is_refused_no_longer(tmp_path):
    with GatewayHere(tmp_path, TASK, FleetSettings(pcs={"attic": PC()})) as here:
        long_ago_s = time.monotonic() - REFUSED_FOR_S - 1.0
        here.gateway.connections.refusals |= {"attic": ("an old version", long_ago_s), "10.0.0.7": ("none", long_ago_s)}
        (row,) = here.status.describe(1).games
        assert (row.name, row.state) == ("attic", "not seen")
        assert row.note == "it was refused, and does not try any more: an old version"


def test_what_a_stages_last_status_says_of_its_decisions_is_read_for_its_last_line(here):
    here.journal.decisions["attic/journaled"] = 12
    assert FleetStatus.last(here.journal.folder, here.journal.attempt) is None
    here.status.end(1)
    assert FleetStatus.last(here.journal.folder, here.journal.attempt).decisions == {"attic/journaled": 12}
    assert FleetStatus.last(here.journal.folder, "another") is None
