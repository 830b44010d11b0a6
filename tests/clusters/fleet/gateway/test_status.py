"""How games do, as a gateway shows it: rates, who is gone, refused or never came, and what a stage's file keeps."""

import time

import pytest

from fakes.fleet_here import CAMERA, GatewayHere, playing
from fakes.stored import append, stored
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.gateway.status import REFUSED_FOR_S, STATUS_FILE, FleetStatus, StatusWriter, read_status
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Health, Hello
from soulsgraph_clusters.fleet.protocol.settings import FleetSettings
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.link import GameSettings

FAST = GameSettings(driver="simulator", speed=20.0, lanes=2)


class Here:
    """A stage's games and their status, without a gateway that serves them."""

    def __init__(self, folder, pcs=()):
        self.journal, self.connections = Journal(folder / "journal" / "camera", "camera"), Connections()
        self.admission = Admission(self.journal, CAMERA, 0, FleetSettings(pcs=tuple(pcs)))
        self.begin_anew()

    def begin_anew(self):
        """Describe the games by another writer, as a gateway does that was started again."""
        self.status = StatusWriter(self.admission, self.connections)

    def rows(self):
        return {game.name: game for game in self.status.describe(1).games}

    def joined(self, said_s=0.0, boot="00", game="1", **health):
        connection = Connection(Hello(pc="attic", game=game, boot=boot, lanes=1), time.monotonic())
        _says(connection, said_s, **health)
        self.connections.begin(connection)
        return connection

    def leave(self, connection):
        connection.close()
        self.connections.end(connection)

    def refuse(self, who, reason, ago_s=0.0):
        self.connections.refusals[who] = reason, time.monotonic() - ago_s

    def written(self):
        return read_status(self.journal.folder.parent)


@pytest.fixture
def here(tmp_path, request):
    here = Here(tmp_path, getattr(request, "param", ()))
    yield here
    here.journal.close()


two_pcs = pytest.mark.parametrize("here", [("attic", "cellar")], indirect=True)


def _says(connection, at_s, **health):
    connection.health, connection.health_s = Health(**health), at_s


# Rates.


def test_rates_are_those_between_what_the_game_said_and_not_between_two_looks(here):
    connection = here.joined(100.0, ticks=1000, metrics={"speed": 3.0, "reset_s/reload": 5.0})
    here.rows()
    _says(connection, 110.0, ticks=1210, metrics={"speed": 3.0, "reset_s/reload": 7.0, "reset_s/aim": 1.0})
    here.rows()
    (game,) = here.rows().values()
    assert game.ticks_per_s == pytest.approx(21.0)
    assert game.reset_share == pytest.approx({"reload": 0.2, "aim": 0.1})


def test_a_rate_forgets_what_is_older_than_the_window(here):
    connection = here.joined()
    for second in range(1, 200):
        _says(connection, float(second), ticks=10 * second if second < 100 else 990)
        (game,) = here.rows().values()
        if second == 90:
            assert game.ticks_per_s == pytest.approx(10.0)
    assert game.ticks_per_s == 0.0


def test_no_rate_counts_from_before_a_game_said_anything_or_was_started_again(here):
    connection = here.joined()
    here.rows()
    for at_s, ticks, rate in ((5000.0, 0, 0.0), (5001.0, 10, 10.0)):
        _says(connection, at_s, ticks=ticks)
        assert here.rows()["attic/1"].ticks_per_s == pytest.approx(rate)
    connection.hello.boot = "01"
    _says(connection, 5002.0, ticks=80_000)
    assert here.rows()["attic/1"].ticks_per_s == 0.0


def test_what_is_no_number_is_shown_as_none(here):
    here.joined(1.0, metrics={"speed": float("nan"), "lateness_p99_ms": float("inf"), "cpu_s": 3.0})
    (game,) = here.rows().values()
    assert (game.ideal_ticks_per_s, game.lateness_p99_ms, game.cpu_s) == (0.0, 0.0, 3.0)


# The file.


def test_a_status_that_cannot_be_written_is_returned_all_the_same(here):
    (here.journal.folder / STATUS_FILE).mkdir()
    assert here.status.update(7).weights_version == 7


# Games that are gone, refused, or never came.


def test_a_game_that_plays_says_how_it_does_and_keeps_its_last_row_once_it_is_gone(tmp_path):
    with GatewayHere(tmp_path, CAMERA) as here:

        def row():
            return next((game for game in here.status.describe(1).games if game.name == "attic/1"), None)

        here.publish()
        with playing(here.head(), here.folder / "attic", FAST):
            # A decision is finished some time after the tick that began it.
            last = until(lambda: (one := row()) and one.ticks_per_s and one.finished and one, "play")
        assert last.connected
        assert last.ideal_ticks_per_s == pytest.approx(200.0)
        assert last.lateness_p99_ms > 0
        assert 0 < last.reset_s["start"] < 60.0
        assert last.cpu_s > 0
        until(lambda: not here.gateway.connections.live, "the end of its stream")
        gone = row()
        assert (gone.state, gone.connected, gone.lanes, gone.driver) == ("lost", False, 2, "simulator")
        assert gone.ticks >= last.ticks > 0
        assert gone.finished >= last.finished
        assert gone.ticks_per_s == 0.0
        until(lambda: row().silent_s > gone.silent_s + 0.1, "a longer silence")
        here.play(FAST)
        until(lambda: row().connected, "the game that is back")


def test_why_a_game_is_gone_stands_in_its_row(here):
    connection = here.joined(1.0, ticks=5, note="as it plays")
    connection.reason = "silent for 5 s"
    here.leave(connection)
    row = here.rows()["attic/1"]
    assert (row.state, row.note, row.ticks) == ("lost", "silent for 5 s", 5)


@two_pcs
def test_a_pc_of_the_file_that_never_came_has_a_row(here):
    here.joined(1.0)
    row = here.rows()["cellar"]
    assert (row.state, row.connected, row.driver) == ("not seen", False, "")
    until(lambda: here.rows()["cellar"].silent_s > row.silent_s, "a longer absence")
    assert here.written() is None
    here.status.update(1, always=True)
    assert [game.name for game in here.written().games] == ["attic/1", "cellar"]


@two_pcs
def test_the_latest_refusal_of_a_pc_has_a_row_until_it_plays_and_of_a_stranger_until_it_tries_no_more(here):
    here.refuse("10.0.0.7", "no token")
    here.refuse("attic", "an old version")
    rows = here.rows()
    assert [(rows[who].state, rows[who].note) for who in ("10.0.0.7", "attic")] == [
        ("refused", "no token"),
        ("refused", "an old version"),
    ]
    assert not rows["attic"].connected
    for who in ("10.0.0.7", "attic"):
        here.refuse(who, "an old version", REFUSED_FOR_S + 1.0)
    rows = here.rows()
    assert {*rows} == {"attic", "cellar"}
    assert (rows["attic"].state, rows["attic"].note) == ("refused", "an old version")
    here.joined()
    here.connections.accept("attic")
    assert {*here.rows()} == {"attic/1", "cellar"}


def test_neither_another_process_nor_another_gateway_begins_what_was_finished_anew(here):
    def counted(boot, finished, **lost):
        """Let another process of the game say what it finished and lost, and return its row."""
        for connection in here.connections.live:
            here.leave(connection)
        here.joined(1.0, boot, finished_decisions=finished, lost_decisions=lost)
        return here.rows()["attic/1"]

    def counts(row):
        return row.finished, dict(row.lost)

    assert counts(counted("a1", 700, doubtful=5)) == (700, {"doubtful": 5})
    assert counts(counted("b2", 0)) == (700, {"doubtful": 5})
    row = counted("b2", 40, doubtful=1, damaged=2)
    assert counts(row) == (740, {"doubtful": 6, "damaged": 2})
    assert row.boot == "b2"
    # A stream that has just begun says nothing of what its process counted before.
    for connection in here.connections.live:
        here.leave(connection)
    here.joined(0.0, "b2")
    assert counts(here.rows()["attic/1"]) == (740, {"doubtful": 6, "damaged": 2})
    here.status.update(1, always=True)
    here.begin_anew()
    assert counts(here.rows()["attic/1"]) == (740, {"doubtful": 6, "damaged": 2})
    assert counts(counted("b2", 50, doubtful=1, damaged=2)) == (750, {"doubtful": 6, "damaged": 2})
    assert counts(counted("c3", 9)) == (759, {"doubtful": 6, "damaged": 2})


@two_pcs
def test_nothing_plays_in_the_last_status_of_a_stage_that_is_over(here):
    append(here.journal, [stored(Chunk(boot="b0", sequence=1, decisions={"camera": 12}))])
    here.joined(1.0, state="playing", finished_decisions=7, waiting_chunks=2)
    here.refuse("cellar", "an old version")
    here.refuse("10.0.0.7", "no token")
    assert FleetStatus.last(here.journal.folder, here.journal.attempt) is None
    here.status.end(3)
    status = FleetStatus.last(here.journal.folder, here.journal.attempt)
    assert status.decisions == {"attic/journaled": 12}
    assert FleetStatus.last(here.journal.folder, "another") is None
    games = {game.name: game for game in status.games}
    assert games.keys() == {"attic/1", "cellar"}
    last = games["attic/1"]
    assert (last.state, last.connected, last.ticks_per_s) == ("stage over", False, 0.0)
    assert (last.finished, last.waiting_chunks) == (7, 2)
    assert (games["cellar"].state, games["cellar"].note) == ("refused", "an old version")
