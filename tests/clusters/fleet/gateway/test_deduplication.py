"""The chunks that were seen, against sets, and bounded for each PC."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_clusters.fleet.gateway import admission, journal
from soulsgraph_clusters.fleet.gateway.journal import Deduplication, Ranges
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Before


@given(st.lists(st.integers(0, 60)))
def test_ranges_hold_what_a_set_holds_in_as_few_pairs_as_can_be(numbers):
    ranges = Ranges()
    for number in numbers:
        ranges.add(number)
    assert {number for number in range(-1, 63) if number in ranges} == set(numbers)
    bounds, pairs = ranges.bounds, [*zip(ranges.bounds[::2], ranges.bounds[1::2], strict=True)]
    assert bounds == sorted(bounds)
    assert len(pairs) == sum(number - 1 not in numbers for number in set(numbers))
    again = Ranges(bounds)
    assert all((number in again) == (number in ranges) for number in range(-1, 63))


def test_ranges_reach_to_the_largest_sequence():
    ranges = Ranges()
    for number in (2**64 - 1, 0, 2**64 - 2):
        ranges.add(number)
    assert ranges.bounds == [0, 0, 2**64 - 2, 2**64 - 1]


_KEYS = st.tuples(
    st.sampled_from(["attic", "cellar"]), st.sampled_from(["1", "2"]), st.sampled_from(["b0", "b1"]), st.integers(0, 6)
)


@given(st.lists(_KEYS), st.integers(1, 8))
def test_a_full_memory_takes_what_lies_beside_a_range_and_no_new_one(keys, most):
    found, kept = Deduplication(), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MOST_RANGES", most)
        for key in keys:
            *owner, sequence = key
            ranges = sum(one[0] == key[0] and (*one[:3], one[3] - 1) not in kept for one in kept)
            near = any((*owner, sequence + step) in kept for step in (-1, 0, 1))
            assert found.has_room(*key) == (ranges < most or near)
            if found.has_room(*key):
                found.add(key)
                kept.add(key)
            found.write_to(before := Before())
            found = Deduplication(before)
            assert {one for one in keys if one in found} == kept


# At the gateway.


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(journal, "MOST_RANGES", 4)


@pytest.mark.slow
def test_a_pc_of_endless_processes_is_refused_and_counts_nothing_twice(few, door, open_door):
    client = door.joined()
    boots = [f"{number:016x}" for number in range(10)]
    for boot in boots[:4]:
        client.send(door.chunk(1, boot=boot))
    client.wait("acknowledgement", 4)
    client.send(door.chunk(1, boot=boots[4]))
    assert "attic: expected at most 10,000 processes of its games and gaps" in client.refusal()
    assert "attic: expected at most" in door.wait_for_note("attic/1 left")
    # Neither does another process join, whatever its game; and what lies beside a range is taken.
    assert "attic: expected at most" in door.client(door.hello(boot=boots[5], game="2")).refusal()
    again = door.joined(boot=boots[0])
    again.send(*(door.chunk(sequence, boot=boots[0]) for sequence in (1, 2, 3)))
    again.acknowledged(1, 2, 3)
    door.check_that_it_serves()
    counted = door.journal.decisions["attic/journaled"]
    assert counted == 6 * 30
    door.close()
    later = open_door()
    assert "attic: expected at most" in later.client(later.hello(boot=boots[6])).refusal()
    client = later.joined(boot=boots[0])
    client.send(later.chunk(3, boot=boots[0]), later.chunk(4, boot=boots[0]))
    client.acknowledged(3, 4)
    assert later.journal.decisions["attic/journaled"] == counted + 30


def test_gaps_count_like_processes(few, door):
    client = door.joined()
    client.send(*(door.chunk(sequence) for sequence in (2, 4, 6, 8)))
    client.acknowledged(2, 4, 6, 8)
    client.send(door.chunk(10))
    assert "gaps in their chunks" in client.refusal()
    again = door.joined()
    again.send(door.chunk(3), door.chunk(5))
    again.acknowledged(3, 5)
    again.send(door.chunk(10))
    again.acknowledged(10)


def test_a_pc_of_endless_games_is_refused(door, monkeypatch):
    monkeypatch.setattr(admission, "MOST_GAMES", 3)
    for name in ("1", "2", "3"):
        door.joined(game=name)
    assert "attic: expected at most 3 games of a PC in a stage" in door.client(door.hello(game="4")).refusal()
    door.joined(game="3")
    door.check_that_it_serves()
