"""The chunks that a journal has or had, in memory: what makes sure that none is taken twice."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Before, Record
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Ranges as RangesMessage

#: Ranges that a PC may have: a process of a game has one, and one more for each gap in its sequences.
MOST_RANGES = 10_000
#: A chunk by its PC, game, boot and sequence.
Key = tuple[str, str, str, int]


def key_of(record: Record) -> Key:
    """Return which chunk a record holds."""
    return record.pc, record.game, record.chunk.boot, record.chunk.sequence


class Ranges:
    """A set of whole numbers, kept as ranges of neighbours; `bounds` are first and last of each, rising."""

    def __init__(self, bounds: Sequence[int] = ()) -> None:
        self._firsts, self._lasts = list(bounds[::2]), list(bounds[1::2])

    @property
    def bounds(self) -> list[int]:
        """First and last number of every range, in one list."""
        return [bound for pair in zip(self._firsts, self._lasts, strict=True) for bound in pair]

    def __len__(self) -> int:
        return len(self._firsts)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]

    def add(self, number: int) -> None:
        """Add a number; one that is there stays."""
        place = bisect_right(self._firsts, number)
        if place and number <= self._lasts[place - 1]:
            return
        joins_before = place > 0 and self._lasts[place - 1] == number - 1
        joins_after = place < len(self._firsts) and self._firsts[place] == number + 1
        if joins_before and joins_after:
            self._lasts[place - 1] = self._lasts.pop(place)
            del self._firsts[place]
        elif joins_before:
            self._lasts[place - 1] = number
        elif joins_after:
            self._firsts[place] = number
        else:
            self._firsts.insert(place, number)
            self._lasts.insert(place, number)


class ChunkSet:
    """A set of chunks, as ranges of sequences by `pc/game/boot`; nothing is ever forgotten.

    One thread adds; others may ask `has_room`.
    """

    def __init__(self, before: Before | None = None) -> None:
        found = {} if before is None else before.seen
        self._own = {key: Ranges(ranges.bounds) for key, ranges in found.items()}
        self._access = threading.Lock()
        #: How many ranges each PC has.
        self._counts: Counter[str] = Counter()
        for key, ranges in self._own.items():
            self._counts[key.partition("/")[0]] += len(ranges)

    def __contains__(self, chunk: Key) -> bool:
        *owner, sequence = chunk
        return sequence in self._own.get("/".join(owner), ())

    def has_room(self, pc: str, game: str, boot: str, sequence: int) -> bool:
        """Return whether a chunk may be added: what one PC sends may not fill the memory."""
        near = (sequence - 1, sequence, sequence + 1)
        with self._access:
            return self._counts[pc] < MOST_RANGES or any((pc, game, boot, each) in self for each in near)

    def add(self, chunk: Key) -> None:
        """Add a chunk; one that is there stays."""
        pc, game, boot, sequence = chunk
        with self._access:
            ranges = self._own.setdefault(f"{pc}/{game}/{boot}", Ranges())
            self._counts[pc] -= len(ranges)
            ranges.add(sequence)
            self._counts[pc] += len(ranges)

    def write_to(self, before: Before) -> None:
        """Write everything into the message that a file of the journal begins with."""
        for key, ranges in self._own.items():
            before.seen[key].CopyFrom(RangesMessage(bounds=ranges.bounds))
