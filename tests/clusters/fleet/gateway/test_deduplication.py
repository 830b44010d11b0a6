"""The chunks that were seen, against sets, and bounded for each PC."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_clusters.fleet.gateway import journal
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
