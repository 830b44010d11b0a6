"""A gateway and its games: every chunk once, one live game of a name, and a stream that is cut again and again."""

from collections import Counter
from contextlib import contextmanager

from fakes.waiting import until
from soulsgraph_clusters.fleet.actor.stream import Stream
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import CODE
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, play_digest
from soulsgraph_clusters.fleet.store import Spool

BOOT, OTHER_BOOT = "00000000000000b0", "00000000000000b1"


def test_a_pcs_words_move_no_cursor(door):
    client = door.joined()
    client.send(door.health(state="broken", note="\x1b[2J\nred"))
    assert door.wait_for_note("is broken") == "attic/1 is broken: ?[2J?red"


def test_duplicates_disorder_and_reconnects_leave_every_chunk_once(door):
    client = door.joined()
    client.send(*(door.chunk(sequence) for sequence in (2, 1, 2, 2, 5)))
    client.acknowledged(1, 2, 5)
    client.close()
    again = door.joined()
    again.send(*(door.chunk(sequence) for sequence in (5, 4, 3, 2, 1)), *(door.chunk(4) for _ in range(30)))
    assert again.acknowledged(1, 2, 3, 4, 5) == {}
    assert door.verdicts() == [(2, ""), (1, ""), (5, ""), (4, ""), (3, "")]
    assert door.journal.decisions == {"attic/journaled": 150}
    # The same numbers of another boot are other chunks.
    again.send(door.chunk(1, boot=OTHER_BOOT))
    until(lambda: len(door.verdicts()) == 6, "the other boot's chunk")


# Connections.


def test_a_second_live_game_of_one_name_is_refused_and_shown_and_the_first_plays_on(door):
    client = door.joined()
    for _ in range(3):
        line = door.client(door.hello(boot=OTHER_BOOT)).refusal()
    assert "attic/1" in line
    assert door.notes() == ["attic/1 joined, playing by simulator", f"attic: refused: {line}"]
    client.send(door.chunk(1))
    assert client.acknowledged(1) == {}
    client.close()
    door.wait_for_note("attic/1 left")
    door.joined(boot=OTHER_BOOT)


def test_the_same_process_takes_the_place_of_its_own_earlier_stream(door):
    first, second = door.joined(), door.joined()
    until(first.ended.is_set, "the earlier stream's end")
    second.send(door.chunk(1))
    assert second.acknowledged(1) == {}
    assert len(door.gateway.connections.live) == 1
    assert door.notes() == ["attic/1 joined, playing by simulator"]


def test_who_only_asks_is_answered_and_takes_nobodys_place(door):
    client = door.joined()
    asks = door.client(door.hello(only_asks=True, boot=""))
    until(asks.ended.is_set, "the answer")
    assert [(stop.reason, stop.refused) for stop in asks.got("stop")] == [("lock_on", False)]
    client.send(door.chunk(1))
    assert client.acknowledged(1) == {}


# The PC's own end of the stream.


@contextmanager
def _stream(door, folder):
    """Connect a spool to a gateway as a game's process does; yield the stream, the spool and what is reported."""
    spool, lines = Spool(folder), []
    hello = wire.Hello(
        protocol=PROTOCOL,
        version="0.1.0",
        game="1",
        boot=spool.boot,
        driver="simulator",
        lanes=3,
        digests={CODE: play_digest()},
    )
    stream = Stream(door.head(), hello, spool, lambda _: None, lines.append)
    stream.start()
    try:
        until(lambda: stream.connected, "the stream")
        yield stream, spool, lines
    finally:
        stream.stop()
        spool.close()


def test_a_spool_is_emptied_by_a_stream_that_is_cut_again_and_again(door, columns, tmp_path):
    with _stream(door, tmp_path / "spool") as (stream, spool, lines):
        for number in range(1, 31):
            chunk = door.chunk(0, columns=columns).chunk
            stream.send(*spool.put(chunk))
            if number % 10 == 5:
                for connection in door.gateway.connections.live:
                    door.gateway._loop.call_soon_threadsafe(connection.close)
        until(lambda: not spool.pending(), "acknowledgements")
    assert Counter(door.verdicts()) == Counter((number, "") for number in range(1, 31))
    assert door.journal.decisions == {"attic/journaled": 900}
    assert set(lines) <= {"the head ended the stream", "the head answers"}
