"""A gateway's accounting: what becomes of every chunk, and of two games of one name."""

import time
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import load, save

from fakes.fleet_here import random_weights
from fakes.waiting import until
from soulsgraph_clusters.fleet.actor.spool import Spool
from soulsgraph_clusters.fleet.actor.stream import Stream
from soulsgraph_clusters.fleet.gateway.admission import MALFORMED, OTHER_STAGE, SHARE, STALE
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.gateway.runner import read_chunk
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import encode_columns
from soulsgraph_clusters.fleet.protocol.security import write_token_file
from soulsgraph_clusters.fleet.protocol.settings import PC, PROTOCOL, FleetSettings, digests
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.learning.sampler import Chunk

BOOT, OTHER_BOOT = "00000000000000b0", "00000000000000b1"


def learned(door):
    """Return the sequences that are learned from, as the learner reads them."""
    return [one.chunk.sequence for one in door.records() if read_chunk(one, door.task) is not None]


# Verdicts.


def _with(name, change):
    def changed(columns):
        arrays = load(columns)
        arrays[name] = change(arrays[name])
        return {"columns": save(arrays)}

    return changed


def test_a_chunk_without_decisions_is_malformed(door):
    client = door.joined()
    empty = encode_columns(Chunk({}, {}, 0))
    client.send(door.chunk(1, columns=empty, decisions={}), door.chunk(2))
    client.acknowledged(1, 2)
    assert door.verdicts() == [(1, MALFORMED), (2, "")]


def test_a_pcs_words_move_no_cursor(door):
    client = door.joined()
    client.send(door.health(state="broken", note="\x1b[2J\nred"))
    assert door.wait_for_note("is broken") == "attic/1 is broken: ?[2J red"


@pytest.mark.parametrize("place", ["one group", "another connection"])
def test_a_chunk_sent_again_takes_nothing_of_its_pcs_share(open_door, place):
    door = open_door(
        settings=FleetSettings(pcs={"attic": PC(share=0.2)} | {f"other-{number}": PC() for number in range(4)})
    )
    client = door.joined()
    door.check_that_it_serves()
    first = [door.chunk(sequence) for sequence in range(1, 8)]
    client.send(*first)
    client.acknowledged(*range(1, 8))
    if place == "another connection":
        client.close()
        client = door.joined()
    door.check_that_it_serves()
    client.send(*first, *first, door.chunk(8))
    client.acknowledged(8)
    assert (8, "") in door.verdicts()


def test_a_pc_of_which_no_batch_would_hold_anything_is_refused_as_over_its_share(open_door):
    door = open_door(journal=lambda folder, stage: Journal(folder, stage, batch_shares={"cellar": 1.0}))
    client = door.joined()
    client.send(door.chunk(1))
    assert client.acknowledged(1) == {SHARE: 30}
    assert door.verdicts() == [(1, SHARE)]


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: {"columns": b""},
        lambda columns: {"columns": b"\x80\x04pickle"},
        lambda columns: {"columns": columns[:-1]},
        lambda columns: {"columns": columns + b"\0"},
        lambda columns: {"columns": save({"transitions/lock_on/more": np.zeros(30)})},
        lambda columns: {"columns": (2**63).to_bytes(8, "little") + columns},
        lambda columns: {"decisions": {"lock_on": 29}},
        lambda columns: {"decisions": {"lock_on": 30, "camera": 1}},
        lambda columns: {"decisions": {}},
        lambda columns: {"decisions": {"camera": 30}},
        _with("transitions/lock_on/actions", lambda values: values + 1000),
        _with("transitions/lock_on/observations", lambda values: values * np.float32(np.nan)),
        # Lanes of other games, and one for which no learner has the memory.
        _with("transitions/lock_on/lanes", lambda values: values + 3),
        _with("transitions/lock_on/lanes", lambda values: values + 2**62),
        _with("transitions/lock_on/lanes", lambda values: values - 100),
    ],
)
def test_bytes_that_are_not_the_declared_columns_are_acknowledged_and_not_learned(door, columns, change):
    client = door.joined()
    message = door.chunk(1, **change(columns))
    client.send(message)
    refused = client.acknowledged(1)
    claimed = sum(message.chunk.decisions.values())
    assert refused == {MALFORMED: claimed}
    client.send(door.chunk(2))
    client.acknowledged(2)
    assert door.verdicts() == [(1, MALFORMED), (2, "")]
    assert learned(door) == [2]
    assert door.journal.decisions[f"attic/{MALFORMED}"] == claimed
    # Bytes that nobody learns from are not kept.
    assert [one.chunk.columns for one in door.records()] == [b"", columns]


#: What one chunk may claim at most: 64 modules of 8192 decisions each.
MOST = 64 * 8192


@pytest.mark.parametrize(
    ("change", "verdict", "claimed"),
    [
        ({"decisions": {"lock_on": 2**64 - 1}}, MALFORMED, MOST),
        ({"decisions": {str(number): 2 for number in range(65)}}, MALFORMED, 130),
        ({"decisions": {str(number) + "a" * 30: 2**63 for number in range(30_000)}}, MALFORMED, MOST),
        ({"decisions": {"a" * 201: 7}}, MALFORMED, 7),
        ({"stage": "a" * 10**6}, OTHER_STAGE, 30),
        ({"attempt": "a" * 10**6}, OTHER_STAGE, 30),
    ],
)
def test_a_chunk_that_says_more_than_any_can_is_refused_by_name_and_kept_small(door, change, verdict, claimed):
    client = door.joined()
    client.send(door.chunk(1, **change), door.chunk(2))
    assert client.acknowledged(1, 2) == {verdict: claimed}
    assert door.verdicts() == [(1, verdict), (2, "")]
    assert door.journal.decisions == {f"attic/{verdict}": claimed, "attic/journaled": 30}
    assert door.records()[0].ByteSize() < 1000
    # Once more it is the same chunk.
    client.send(door.chunk(1, **change), door.chunk(3))
    client.acknowledged(3)
    assert door.verdicts() == [(1, verdict), (2, ""), (3, "")]


def test_fields_that_nobody_knows_are_not_kept(door):
    client = door.joined()
    unknown = b"\xfa\x7f" + b"\xff\xff\x03" + bytes(2**16 - 1)
    client.send(
        wire.FromGame(chunk=wire.Chunk.FromString(door.chunk(1, columns=b"").chunk.SerializeToString() + unknown))
    )
    assert client.acknowledged(1) == {MALFORMED: 30}
    assert door.records()[0].ByteSize() < 1000


def test_a_chunk_of_another_stage_or_attempt_is_refused_by_name(door):
    client = door.joined()
    client.send(door.chunk(1, stage="dodge"), door.chunk(2, attempt="another"), door.chunk(3, columns=b"", stage=""))
    assert client.acknowledged(1, 2, 3) == {OTHER_STAGE: 90}
    assert learned(door) == []
    door.check_that_it_serves()


def test_a_chunk_whose_versions_are_not_its_decisions_is_malformed_and_leaves_none(door):
    client, fitting = door.joined(), {"versions": [1] * 30, "ticks": range(30)}
    client.send(door.chunk(1, **fitting), door.chunk(2, **fitting | {"versions": [1] * 29}))
    assert client.acknowledged(1, 2) == {MALFORMED: 30}
    kept = [(len(one.chunk.versions), len(one.chunk.ticks)) for one in door.records()]
    assert kept == [(30, 30), (0, 0)]


def test_a_chunk_of_stale_weights_is_refused_and_one_of_fresh_weights_is_not(open_door):
    door = open_door(settings=FleetSettings(most_stale_ticks=1))
    door.publish(5)
    client = door.joined()
    client.wait("weights")
    client.send(door.chunk(1, weights_version=5))
    assert client.acknowledged(1) == {}
    door.publish(6)
    until(lambda: client.got("weights")[-1].version == 6, "newer weights")
    until(lambda: door.admission.stale_ticks(5, time.monotonic()) > 1, "the older ones to be stale")
    client.send(door.chunk(2, weights_version=5), door.chunk(3, weights_version=6), door.chunk(4, weights_version=0))
    client.acknowledged(2, 3, 4)
    assert door.verdicts() == [(1, ""), (2, STALE), (3, ""), (4, STALE)]
    assert door.journal.decisions == {"attic/journaled": 60, f"attic/{STALE}": 60}


# Exactly once.


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


def test_a_verdict_stands_when_a_chunk_is_sent_again(door, columns):
    client = door.joined()
    client.send(door.chunk(1, columns=b"other"))
    assert client.acknowledged(1) == {MALFORMED: 30}
    again = door.joined()
    again.send(door.chunk(1, columns=columns))
    again.acknowledged(1)
    assert door.verdicts() == [(1, MALFORMED)]


def test_chunks_of_an_earlier_boot_are_taken_from_the_next_process(door):
    client = door.joined(boot=OTHER_BOOT)
    client.send(door.chunk(7), door.chunk(1, boot=OTHER_BOOT))
    client.wait("acknowledgement", 2)
    assert {(answer.boot, *answer.sequences) for answer in client.got("acknowledgement")} == {
        (BOOT, 7),
        (OTHER_BOOT, 1),
    }


def test_a_gateway_that_ends_writes_what_came_and_acknowledges_no_more_than_it_wrote(door):
    client = door.joined()
    client.send(*(door.chunk(sequence) for sequence in range(200)))
    until(lambda: client.got("acknowledgement"), "a first group")
    door.gateway.stop("the stage is over")
    until(client.ended.is_set, "the stream's end")
    told = {one for answer in client.got("acknowledgement") for one in answer.sequences}
    counted = Counter(sequence for sequence, _ in door.verdicts())
    assert told <= counted.keys()
    assert set(counted.values()) == {1}
    # What is read from the files is what was written: nothing lies across anything else.
    reader = Journal.reading(door.journal.folder, "lock_on")
    assert [one.chunk.sequence for _, one in reader.read(0, 10**6)] == [sequence for sequence, _ in door.verdicts()]
    reader.close()


def test_lanes_of_games_do_not_overlap_whatever_their_names_and_outlive_the_gateway(door, open_door):
    names = ["1", '"', "\\", '": [0, 1], "x', "1 3", "Ü"]
    first = {name: door.joined(game=name).wait("task").first_lane for name in names}
    assert sorted(first.values()) == [0, 3, 6, 9, 12, 15]
    assert door.joined(game="1", lanes=5).wait("task").first_lane == 18
    door.close()
    again = open_door()
    assert {name: again.joined(game=name).wait("task").first_lane for name in names} == first
    assert again.joined(game="new").wait("task").first_lane == 23


def test_a_game_that_was_started_again_has_fights_of_its_own_whichever_gateway_numbers_its_boots(door, open_door):
    boots = [f"{number:016x}" for number in range(3)]
    seeds = {}
    for boot in boots:
        client = door.joined(boot=boot)
        seeds[boot] = client.wait("task").seed
        client.close()
    assert len(set(seeds.values())) == len(boots)
    # The first boot plays as every first boot did: by the stage's seed and its lanes alone.
    assert seeds[boots[0]] == int(derive_seeds(np.uint64(0), 0)[0]) >> 1
    other = door.joined(game="2", boot=boots[1]).wait("task")
    assert other.seed == int(derive_seeds(np.uint64(0), other.first_lane)[0]) >> 1
    door.close()
    again = open_door()
    for boot in reversed(boots):
        client = again.joined(boot=boot)
        assert client.wait("task").seed == seeds[boot]
        client.close()
    assert again.joined(boot="f" * 16).wait("task").seed not in seeds.values()


# Connections.


def test_a_second_machine_with_a_copy_of_the_token_is_refused_whatever_its_games_are_called(door):
    client = door.joined(machine="a" * 16)
    door.joined(game="2", boot=OTHER_BOOT, machine="a" * 16)
    line = door.client(door.hello(game="3", boot="c" * 16, machine="b" * 16)).refusal()
    assert "attic: expected one machine of this name, found another, whose games are live; end one of them" in line
    # One that does not know its machine names none.
    door.joined(game="4", boot="d" * 16)
    client.send(door.chunk(1))
    assert client.acknowledged(1) == {}


def test_a_pc_that_was_replaced_plays_once_the_machine_before_is_gone(door):
    client = door.joined(machine="a" * 16)
    client.close()
    door.wait_for_note("attic/1 left")
    door.joined(boot=OTHER_BOOT, machine="b" * 16)


def test_a_second_live_game_of_one_name_is_refused_and_shown_and_the_first_plays_on(door):
    client = door.joined()
    for _ in range(3):
        line = door.client(door.hello(boot=OTHER_BOOT)).refusal()
    assert "attic/1: expected one live game of this name, found another process" in line
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
        protocol=PROTOCOL, version="0.1.0", game="1", boot=spool.boot, driver="simulator", lanes=3, digests=digests()
    )
    stream = Stream(door.head(), hello, spool, wire.Health, lambda _: None, lines.append)
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


def test_a_spool_keeps_no_chunk_that_the_head_refuses_and_sends_those_behind_it(door, tmp_path):
    poison = {f"module {number}": 2 for number in range(100)}
    with _stream(door, tmp_path / "spool") as (stream, spool, lines):
        for decisions in (poison, {"lock_on": 30}):
            stream.send(*spool.put(door.chunk(0, decisions=decisions).chunk))
        until(lambda: not spool.pending(), "acknowledgements")
        assert len(door.gateway.connections.live) == 1
    assert door.verdicts() == [(1, MALFORMED), (2, "")]
    assert door.journal.decisions == {f"attic/{MALFORMED}": 200, "attic/journaled": 30}
    assert (spool.lost, lines) == ({}, [])


def test_a_stream_reads_its_tokens_file_again_when_the_head_issued_a_new_token(door, tmp_path):
    file = door.token_file()
    with _stream(door, tmp_path / "spool") as (stream, spool, lines):
        renewed = door.tokens.issue("attic")
        until(lambda: any("expected one that the head issued" in line for line in lines), "a refusal")
        file.unlink()
        until(lambda: any("expected a readable token file" in line for line in lines), "a line")
        assert not any("\n" in line for line in lines)
        write_token_file(file, renewed)
        until(lambda: stream.connected, "the stream")
        stream.send(*spool.put(door.chunk(0).chunk))
        until(lambda: not spool.pending(), "an acknowledgement")


def test_chunks_of_a_game_that_says_nothing_of_frozen_weights_or_nonsense(door, lock_on_task):
    door.admission.freeze(random_weights(lock_on_task))
    client = door.joined()
    client.send(door.chunk(1), door.chunk(2, frozen=b"a" * 33))
    assert client.acknowledged(1, 2) == {"malformed": 30}
    door.gateway.publish(1, random_weights(lock_on_task), {"lock_on": 0})
    client.wait("weights")
    # What an earlier process of the game played says nothing of this one.
    client.send(door.chunk(1, frozen=b"a" * 32, boot=OTHER_BOOT))
    until(lambda: door.journal.decisions["attic/altered"] == 30, "a verdict")
    assert not any("frozen skills" in note for note in door.notes())
    client.send(door.chunk(3, frozen=b"a" * 32))
    door.wait_for_note("attic/1: expected frozen skills to play by the stage's weights, found others")
    client.wait("weights", 2)
    assert client.got("weights")[0] == client.got("weights")[1]
    assert [verdict for _, verdict in door.verdicts()] == ["", "malformed", "altered", "altered"]
