"""A gateway beside silence, its own standstill, a full disk and a bug."""

import os
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.gateway import admission
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.protocol.settings import SILENT_AFTER_S
from soulsgraph_envs.core.files import WriteError


@pytest.fixture
def silent_after_s():
    return SILENT_AFTER_S


# Silence.


def _require_lost(door, name, since_s):
    other = door.client(door.hello(game="2"))
    other.wait("task")
    until(lambda: other.send(door.health()) and any("silent" in note for note in door.notes()), "the silence")
    assert door.wait_for_note("silent") == f"{name} left: silent for 5 s"
    assert time.monotonic() - since_s > SILENT_AFTER_S
    # The game that goes on is not blamed.
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/2"]


def test_a_silent_stream_counts_as_lost_and_is_reported_by_name(door):
    since_s, client = time.monotonic(), door.joined()
    _require_lost(door, "attic/1", since_s)
    assert client.ended.wait(PATIENCE_S)
    door.joined()


def test_a_game_that_stands_still_and_does_not_read_either_is_reported_all_the_same(door):
    # More than a connection takes without its reader.
    big = {"lock_on": {"weight": np.zeros(900_000, np.float32)}}
    door.publish(1, big)
    since_s, client = time.monotonic(), door.client(door.hello(), reads=False)
    until(lambda: door.gateway.connections.live, "the stream")
    _require_lost(door, "attic/1", since_s)
    client.close()
    door.joined()


@pytest.mark.slow
def test_a_gateway_that_stood_still_blames_nobody(door):
    clients = [door.joined(game=str(number)) for number in range(3)]
    door.gateway._loop.call_soon_threadsafe(time.sleep, SILENT_AFTER_S + 2)
    # They say nothing meanwhile either, and for a moment longer.
    time.sleep(SILENT_AFTER_S + 3)
    assert len(list(door.gateway.connections.live)) == 3
    for client in clients:
        client.send(door.chunk(1))
    assert [client.acknowledged(1) for client in clients] == [{}, {}, {}]
    assert [note for note in door.notes() if "joined" not in note] == []


def test_a_game_that_does_not_read_is_ended_when_its_token_is_revoked(door):
    door.publish(1, {"lock_on": {"weight": np.zeros(900_000, np.float32)}})
    client = door.client(door.hello(), reads=False)
    until(lambda: door.gateway.connections.live, "the stream")
    door.tokens.revoke("attic")
    until(lambda: client.send(door.health()) and door.gateway.connections.live == [], "its end")
    assert door.wait_for_note("left") == "attic/1 left: its token was revoked"
    door.check_that_it_serves()


# A journal that cannot be written.


class FullJournal(Journal):
    """A journal whose disk is full while `full` is set."""

    full = threading.Event()

    def append(self, records):
        if self.full.is_set():
            raise WriteError(self.folder, OSError(28, os.strerror(28)))
        return super().append(records)


@pytest.fixture
def full():
    FullJournal.full.clear()
    yield FullJournal.full
    FullJournal.full.clear()


def test_nothing_is_acknowledged_while_the_journal_cannot_be_written_and_all_of_it_later(open_door, full):
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(door.chunk(1), door.chunk(2))
    assert "free some disk space" in door.wait_for_note("expected a place to write to")
    client.send(door.chunk(3))
    # Longer than the gateway waits before it tries again.
    for _ in range(5):
        time.sleep(0.5)
        client.send(door.health())
    assert client.got("acknowledgement") == []
    assert door.verdicts() == []
    assert sum("disk space" in note for note in door.notes()) == 1
    full.clear()
    assert client.acknowledged(1, 2, 3) == {}
    assert door.verdicts() == [(1, ""), (2, ""), (3, "")]
    door.check_that_it_serves()


def test_a_full_journal_acknowledges_nothing_until_it_is_pruned(open_door, columns):
    room = 8 * len(columns)
    door = open_door(journal=partial(Journal, segment_bytes=len(columns), most_bytes=room))
    client = door.joined()
    for sequence in range(1, 6):
        client.send(door.chunk(sequence))
        client.acknowledged(sequence)
    client.send(*(door.chunk(sequence) for sequence in range(6, 12)))
    assert "expected at most" in door.wait_for_note("PCs keep what they play until a checkpoint makes room")
    # Longer than the gateway waits before it tries again.
    for _ in range(4):
        time.sleep(0.5)
        client.send(door.health())
    assert door.journal.end < 11
    written = {sequence for sequence, _ in door.verdicts()}
    assert {one for answer in client.got("acknowledgement") for one in answer.sequences} == written
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/1"]
    door.journal.prune(door.journal.end)
    assert client.acknowledged(*range(1, 12)) == {}
    assert door.wait_for_note("is written again")
    assert door.journal.decisions == {"attic/journaled": 11 * 30}
    assert door.journal.size_bytes <= room


@pytest.mark.parametrize(("limit", "most"), [("MOST_WAITING", 2), ("MOST_WAITING_BYTES", 20_000)])
@pytest.mark.slow
def test_a_game_whose_chunks_wait_for_room_is_not_silent(open_door, full, monkeypatch, limit, most):
    monkeypatch.setattr(admission, limit, most)
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(*(door.chunk(sequence) for sequence in range(20)))
    door.wait_for_note("free some disk space")
    for _ in range(int(SILENT_AFTER_S) + 2):
        client.send(door.health())
        time.sleep(1.0)
    assert [connection.name for connection in door.gateway.connections.live] == ["attic/1"]
    # Most of it was not even read.
    assert door.gateway.chunks._waiting.qsize() < 10
    full.clear()
    client.acknowledged(*range(20))
    assert [sequence for sequence, _ in door.verdicts()] == [*range(20)]
    assert not any("1 left" in note for note in door.notes())


def test_a_gateway_ends_though_its_journal_cannot_be_written(open_door, full, monkeypatch):
    door = open_door(journal=FullJournal)
    client = door.joined()
    full.set()
    client.send(door.chunk(1))
    door.wait_for_note("free some disk space")
    # It does not wait for that.
    monkeypatch.setattr(admission, "WRITE_WITHIN_S", PATIENCE_S)
    door.gateway.stop("the stage is over")
    until(client.ended.is_set, "the stream's end")
    assert client.got("acknowledgement") == []
    assert [stop.reason for stop in client.got("stop")] == ["the stage is over"]
    assert door.verdicts() == []


class SlowJournal(Journal):
    """A journal on a disk that other work keeps busy."""

    def append(self, records):
        time.sleep(4.0)
        return super().append(records)


# The client says nothing for nearly as long as a silent game is waited for.
@pytest.mark.parametrize("silent_after_s", [PATIENCE_S])
def test_what_came_before_a_stages_end_is_written_to_a_slow_disk_and_acknowledged(open_door):
    door = open_door(journal=SlowJournal)
    client = door.joined()
    client.send(door.chunk(1))
    until(lambda: door.gateway.chunks._waiting._unfinished_tasks, "the chunk")
    door.gateway.stop("the stage is over")
    assert client.acknowledged(1) == {}
    assert [sequence for sequence, _ in door.verdicts()] == [1]


class BrokenJournal(Journal):
    """A journal with a bug."""

    def append(self, records):
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


_FULL_LANES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))
from pathlib import Path
from soulsgraph_clusters.fleet.gateway.admission import _LaneTable
from soulsgraph_envs.core.files import WriteError
table = _LaneTable(Path(sys.argv[1]))
for _ in range(2):
    try:
        print(table.first("attic/1", 3))
    except WriteError as error:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
print(table.first("attic/2", 3), table.first("attic/1", 3))
print(_LaneTable(Path(sys.argv[1])).first("attic/1", 3))
"""


def test_lanes_that_could_not_be_written_down_are_nobodys(tmp_path):
    script = [sys.executable, "-c", _FULL_LANES, tmp_path / "lanes.json"]
    found = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert found.split() == ["refused", "refused", "0", "3", "3"]
