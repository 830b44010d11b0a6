"""A gateway beside silence, its own standstill, a full disk and a bug."""

import os
import threading
import time

import numpy as np
import pytest

from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.gateway import admission
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.core.files import WriteError

SILENT_AFTER_S = 2.0


@pytest.fixture
def silent_after_s():
    return SILENT_AFTER_S


# Silence.


def test_silent_games_count_as_lost_also_one_that_does_not_read_and_who_goes_on_is_not_blamed(door):
    # More than a connection takes without its reader.
    door.publish(1, {"lock_on": {"weight": np.zeros(900_000, np.float32)}})
    since_s, silent = time.monotonic(), door.joined()
    door.client(door.hello(game="2"), reads=False)
    other = door.joined(game="3")
    until(lambda: other.send(door.health()) and len(door.gateway.connections.live) == 1, "the silence")
    assert time.monotonic() - since_s > SILENT_AFTER_S
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/3"]
    assert silent.ended.wait(PATIENCE_S)
    assert {door.wait_for_note(f"attic/{game} left") for game in "12"} == {
        f"attic/{game} left: silent for 2 s" for game in "12"
    }
    door.joined()


def test_a_gateway_that_stood_still_blames_nobody(door):
    clients = [door.joined(game=str(number)) for number in range(3)]
    stood = threading.Event()
    door.gateway._loop.call_soon_threadsafe(time.sleep, SILENT_AFTER_S + 1.0)
    # They say nothing meanwhile either.
    door.gateway._loop.call_soon_threadsafe(stood.set)
    assert stood.wait(PATIENCE_S)
    for client in clients:
        client.send(door.chunk(1))
    assert [client.acknowledged(1) for client in clients] == [{}, {}, {}]
    assert [note for note in door.notes() if "joined" not in note] == []


# A journal that cannot be written.


class FullJournal(Journal):
    """A journal whose disk is full while `full` is set, and the number of tries to write it."""

    full, tries = threading.Event(), 0

    def append(self, chunk):
        FullJournal.tries += 1
        if self.full.is_set():
            raise WriteError(self.folder, OSError(28, os.strerror(28)))
        return super().append(chunk)


@pytest.fixture
def full():
    FullJournal.full.clear()
    yield FullJournal.full
    FullJournal.full.clear()


def _further_tries():
    tries = FullJournal.tries
    until(lambda: FullJournal.tries > tries + 2, "further tries")


def test_nothing_is_acknowledged_while_the_journal_cannot_be_written_and_all_of_it_later(open_door, full):
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(door.chunk(1), door.chunk(2))
    door.wait_for_note(os.strerror(28))
    client.send(door.chunk(3))
    _further_tries()
    assert client.got("acknowledgement") == []
    assert door.verdicts() == []
    assert sum(os.strerror(28) in note for note in door.notes()) == 1
    full.clear()
    assert client.acknowledged(1, 2, 3) == {}
    assert door.verdicts() == [(1, ""), (2, ""), (3, "")]
    door.check_that_it_serves()


@pytest.mark.parametrize(("limit", "most"), [("MOST_WAITING", 2), ("MOST_WAITING_BYTES", 20_000)])
def test_a_game_whose_chunks_wait_for_room_is_not_silent(open_door, full, monkeypatch, limit, most):
    monkeypatch.setattr(admission, limit, most)
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(*(door.chunk(sequence) for sequence in range(20)))
    door.wait_for_note(os.strerror(28))
    time.sleep(SILENT_AFTER_S + 0.5)
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/1"]
    # Most of it was not even read.
    assert door.gateway.chunks._waiting.qsize() < 10
    full.clear()
    client.acknowledged(*range(20))
    assert [sequence for sequence, _ in door.verdicts()] == [*range(20)]


def test_a_gateway_ends_though_its_journal_cannot_be_written(open_door, full, monkeypatch):
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(door.chunk(1))
    door.wait_for_note(os.strerror(28))
    # It does not wait for that.
    monkeypatch.setattr(admission, "WRITE_WITHIN_S", PATIENCE_S)
    door.gateway.stop("the stage is over")
    until(client.ended.is_set, "the stream's end")
    assert client.got("acknowledgement") == []
    assert [stop.reason for stop in client.got("stop")] == ["the stage is over"]
    assert door.verdicts() == []


class BrokenJournal(Journal):
    """A journal with a bug."""

    def append(self, chunk):
        raise ValueError("a bug")


def test_a_gateway_in_which_a_part_ended_by_a_bug_says_so_to_its_runner(open_door):
    door = open_door(journal=BrokenJournal)
    door.gateway.check()
    client = door.joined()
    client.send(door.chunk(1))

    def failed():
        try:
            door.gateway.check()
        except ValueError as error:
            return str(error)
        return ""

    assert until(failed, "the failure") == "a bug"
    assert client.got("acknowledgement") == []
