"""One stage after another: games stay connected, and what comes between two stages is refused by the next one."""

import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from fakes.fleet_here import GatewayHere
from fakes.stored import everything, message
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.gateway import admission, connections
from soulsgraph_clusters.fleet.protocol.settings import State
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.link import GameSettings

NEXT = "the next one"


def test_a_connected_game_gets_the_next_stage_and_all_of_its_weights(door):
    client = door.joined()
    for count in (1, 2):
        door.publish()
        client.wait("weights", count)
    door.end_stage()
    assert client.wait("stop").reason == "the stage is over"
    first = door.journal.attempt
    door.begin_stage(NEXT)
    task = client.wait("task", 2)
    assert (task.stage, task.attempt) == (NEXT, door.journal.attempt)
    assert task.attempt != first
    # A stage counts its versions anew, and frozen modules may have changed.
    door.publish()
    weights = client.wait("weights", 3)
    assert weights.version == 1
    assert weights.arrays == client.got("weights")[0].arrays
    client.send(door.chunk(1, stage=NEXT))
    assert client.acknowledged(1) == {}
    assert door.verdicts() == [(1, "")]
    assert door.notes() == ["attic/1 joined, playing by simulator"]
    assert not client.ended.is_set()


def test_a_chunk_that_comes_between_two_stages_is_refused_by_the_next_one(door):
    client = door.joined()
    old = door.chunk(2)
    client.send(door.chunk(1))
    client.acknowledged(1)
    door.end_stage()
    client.send(old, door.health(state="resting"))
    (connection,) = door.gateway.connections.live
    until(lambda: connection.health.state == "resting", "what was sent behind the chunk")
    assert len(client.got("acknowledgement")) == 1
    door.begin_stage(NEXT)
    assert client.acknowledged(1, 2) == {"other stage": 30}
    assert door.verdicts() == [(2, "other stage")]


def test_what_is_being_written_as_a_stage_ends_is_in_its_journal_and_acknowledged(door, monkeypatch):
    monkeypatch.setattr(admission, "WRITE_WITHIN_S", 0.1)
    client, append, slow = door.joined(), door.journal.append, threading.Event()

    def appended(chunk):
        slow.set()
        time.sleep(0.5)
        return append(chunk)

    monkeypatch.setattr(door.journal, "append", appended)
    client.send(door.chunk(1))
    assert slow.wait(PATIENCE_S)
    door.end_stage()
    assert client.acknowledged(1) == {}
    with closing(Journal(door.journal.folder, door.journal.stage, reading=True)) as ended:
        assert [(one.number, one.refused) for one in everything(ended)] == [(1, "")]
    door.begin_stage(NEXT)
    assert client.wait("task", 2).stage == NEXT
    door.gateway.check()


def test_weights_that_a_game_did_not_read_are_not_sent_in_the_next_stage(door, monkeypatch):
    client = door.joined()
    with monkeypatch.context() as unread:
        unread.setattr(connections.Connection, "wake", lambda self: None)
        door.publish(version=5000)
        (connection,) = door.gateway.connections.live
        until(lambda: connection.weights, "weights that wait")
        door.end_stage()
    door.begin_stage(NEXT)
    client.wait("task", 2)
    door.publish()
    client.wait("weights")
    assert [weights.version for weights in client.got("weights")] == [1]


@pytest.fixture
def waiting(door, monkeypatch):
    """Return a client that came between two stages, whose hello the gateway has."""
    came, admit = threading.Event(), door.gateway._admit

    def admitted(connection):
        came.set()
        return admit(connection)

    monkeypatch.setattr(door.gateway, "_admit", admitted)
    door.end_stage()
    client = door.client(door.hello())
    assert came.wait(PATIENCE_S)
    return client


def test_a_game_that_waits_for_a_stage_learns_that_there_is_none(door, waiting):
    client = waiting
    door.gateway.stop("the run is over")
    stop = client.wait("stop")
    assert (stop.reason, stop.refused) == ("the run is over", False)
    assert door.notes() == []


def test_a_game_that_comes_between_two_stages_waits_for_the_next_one(door, waiting):
    time.sleep(0.1)
    assert not waiting.received
    assert not waiting.ended.is_set()
    door.begin_stage(NEXT)
    assert waiting.wait("task").stage == NEXT


def test_a_game_whose_pc_lacks_what_the_next_stage_needs_is_refused_by_name(door, lock_on_task):
    client, other = door.joined(), door.joined(game="2")
    other.close()
    door.wait_for_note("attic/2 left")
    door.end_stage()
    task = replace(lock_on_task)
    # The head itself has no project of that name.
    object.__setattr__(task, "projects", {"fencing": "0" * 64})
    door.begin_stage(NEXT, task)
    assert "fencing" in client.refusal()
    assert len(client.got("task")) == 1
    # Who left in an earlier stage is none of this one's games.
    assert [game.name for game in door.status.describe(1).games] == ["attic/1"]


def test_a_drained_pc_stays_drained_in_the_next_stage(door):
    client = door.joined()
    door.tokens.drain("attic", True)
    until(lambda: any(stop.after_fight for stop in client.got("stop")), "the end of its play")
    door.end_stage()
    door.begin_stage(NEXT)
    until(lambda: client.got("stop")[-1].after_fight and len(client.got("stop")) >= 3, "the next one's word")
    assert len(client.got("task")) == 1
    door.tokens.drain("attic", False)
    assert client.wait("task", 2).stage == NEXT


def test_a_playing_game_fights_on_in_the_next_stage(lock_on_task, tmp_path):
    with GatewayHere(tmp_path, lock_on_task) as here:
        lines = here.play(GameSettings(driver="simulator", speed=20.0, lanes=2))
        until(here.records, "a chunk")
        (connection,) = here.gateway.connections.live
        here.end_stage()
        until(lambda: connection.health.state == State.WAITING, "a game that waits")
        here.begin_stage(NEXT)
        here.publish()
        until(lambda: any(not record.refused for record in here.records()), "chunks of the next stage")
        assert [*here.gateway.connections.live] == [connection]
        assert {message(record).stage for record in here.records() if not record.refused} == {NEXT}
        assert lines.count("playing") == 2
