"""The one journal of a stage, in the run folder: every chunk of every game exactly once, with its verdict, in order.

Records lie in segment files named by the position of their first record; each begins with what came before it, so
that old segments can be removed. A record is on disk before it is acknowledged. What a killed writer left half
written, and so never acknowledged, is cut off when the journal is opened. The chunks that it has or had are kept in
memory as ranges of sequences: none is taken twice.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Before, Record
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Ranges as RangesMessage
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.files import FileLock, HeldError, make_folder, sync_file, sync_folder, writing

#: A segment is closed once it is larger.
SEGMENT_BYTES = 64 * 2**20
#: A journal is not written while it would be larger.
MOST_BYTES = 10**9
#: The verdict of records that are learned from; those refused have the reason in its place.
JOURNALED = "journaled"
#: Ranges that a PC may have: a process of a game has one, and one more for each gap in its sequences.
MOST_RANGES = 10_000
#: A chunk by its PC, game, boot and sequence.
Key = tuple[str, str, str, int]
_MAGIC = b"soulsgraph journal 1\n"
#: Before each record: whether it begins a group that is written with one fsync, its size and its checksum.
_FRAME = struct.Struct("<4sII")
_FIRST, _FURTHER = b"SGj:", b"SGj+"
_SUFFIX, _LOCK = ".journal", ".lock"
_REMEDY = "restore the file from a copy, or remove the stage's journal and checkpoints to begin the stage anew"


class JournalError(SoulsGraphError):
    """A journal is damaged, another stage's, or written by another process."""

    def __init__(self, path: Path, expected: str, found: object, remedy: str = _REMEDY) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}", remedy)


@dataclass
class _Segment:
    """One file: the position of its first record, where each record begins, and where the next one will."""

    path: Path
    first: int
    offsets: list[int]
    end: int

    @property
    def after(self) -> int:
        """The position behind its last record."""
        return self.first + len(self.offsets)


class Journal:
    """Append to a stage's journal, or read it only; one writer at a time, whose threads may read meanwhile.

    Raises:
        JournalError: if it is damaged, another stage's, or another process writes it.
        WriteError: if it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        stage: str,
        segment_bytes: int = SEGMENT_BYTES,
        most_bytes: int = MOST_BYTES,
        *,
        reading: bool = False,
    ) -> None:
        self.folder, self.stage = folder, stage
        # Room is made by whole segments.
        self._segment_bytes, self._most_bytes = min(segment_bytes, most_bytes // 16), most_bytes
        self._reading = reading
        #: The chunks that it has, and those that it had before it was pruned.
        self.deduplication = Deduplication()
        #: Decisions by `PC/verdict`, since the journal began.
        self.decisions: Counter[str] = Counter()
        self.attempt = ""
        self._access = threading.Lock()
        self._lock = None if reading else _locked(folder)
        self._file: FileIO | None = None
        try:
            self._segments = self._open_segments()
            if not reading:
                self._begin_segment() if not self._segments else self._continue(self._segments[-1])
        except BaseException:
            self.close()
            raise

    @classmethod
    def reading(cls, folder: Path, stage: str) -> Journal:
        """Open a journal to read what it holds now, beside its writer or without one."""
        return cls(folder, stage, reading=True)

    @property
    def first(self) -> int:
        """The position of the oldest record that is kept."""
        return self._segments[0].first if self._segments else 0

    @property
    def end(self) -> int:
        """The position that the next record will have."""
        return self._segments[-1].after if self._segments else 0

    @property
    def size_bytes(self) -> int:
        """What its files hold."""
        with self._access:
            return sum(segment.end for segment in self._segments)

    def append(self, records: Sequence[Record]) -> list[Record]:
        """Write records that are not there yet, all with one fsync, and return them.

        Raises:
            JournalError: if it would be too large; `prune` makes room.
            WriteError: if they cannot be written; the journal stays as it was.
        """
        new: dict[Key, Record] = {}
        for record in records:
            if (key := key_of(record)) not in self.deduplication:
                new.setdefault(key, record)
        if not new:
            return []
        markers = (_FIRST, *[_FURTHER] * (len(new) - 1))
        frames = [
            _framed(record.SerializeToString(), marker) for record, marker in zip(new.values(), markers, strict=True)
        ]
        size = sum(map(len, frames))
        # Of one file alone nothing can be pruned.
        if len(self._segments) > 1 and self.size_bytes + size > self._most_bytes:
            expected, remedy = f"at most {self._most_bytes / 1e6:g} MB", "PCs keep what they play until a checkpoint"
            raise JournalError(self.folder, expected, f"{size / 1e6:.3g} more to write", f"{remedy} makes room")
        if self._segments[-1].end + size > self._segment_bytes and self._segments[-1].offsets:
            self._begin_segment()
        self._write(frames)
        for record in new.values():
            self._count(record)
        return [*new.values()]

    def _write(self, frames: Sequence[bytes]) -> None:
        segment = self._segments[-1]
        assert not self._reading, "a journal opened for reading is not written"
        with writing(segment.path):
            if self._file is None:
                self._continue(segment)
            file = self._file
            assert file is not None
            try:
                left = memoryview(b"".join(frames))
                # A disk that fills up takes a part at first, and refuses only what comes after it.
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                # Whatever came through is cut off before the next record, so that it follows the last whole one.
                self._file = None
                with suppress(OSError):
                    os.ftruncate(file.fileno(), segment.end)
                file.close()
                raise
        with self._access:
            for frame in frames:
                segment.offsets.append(segment.end)
                segment.end += len(frame)

    def read(self, position: int, most: int) -> list[tuple[int, Record]]:
        """Return up to `most` records in order, each with its position, from a position on; raises as `read_bytes`."""
        return [
            (position + place, Record.FromString(body)) for place, body in enumerate(self.read_bytes(position, most))
        ]

    def read_bytes(self, position: int, most: int) -> list[bytes]:
        """Return up to `most` records as they were written, in order, from a position on.

        Raises:
            JournalError: if the journal begins after it, or is damaged there.
        """
        if position < self.first:
            raise JournalError(self.folder, f"the records from {position} on", f"those from {self.first} on")
        with self._access:
            parts = [
                (one, [*one.offsets[max(position - one.first, 0) :][: most + 1], one.end])
                for one in self._segments
                if one.after > position
            ]
        found: list[bytes] = []
        for segment, offsets in parts:
            count = min(most - len(found), len(offsets) - 1)
            if not count:
                break
            with reading(segment.path), segment.path.open("rb") as file:
                file.seek(offsets[0])
                data = file.read(offsets[count] - offsets[0])
            found += [body for _, body in _bodies(segment.path, data, offsets[0])]
        return found

    def prune(self, before: int) -> None:
        """Remove files that hold nothing but records before a position."""
        with self._access:
            while len(self._segments) > 1 and self._segments[0].after <= before:
                with writing(self._segments[0].path):
                    self._segments[0].path.unlink()
                del self._segments[0]

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.close()

    def _count(self, record: Record) -> None:
        self.deduplication.add(key_of(record))
        self.decisions[f"{record.pc}/{record.refused or JOURNALED}"] += sum(record.chunk.decisions.values())

    def _open_segments(self) -> list[_Segment]:
        paths = sorted(self.folder.glob(f"*{_SUFFIX}"), key=lambda path: int(path.stem))
        segments: list[_Segment] = []
        for path in paths:
            try:
                segment = self._scan(path, last=path is paths[-1])
            except FileNotFoundError:
                # Its writer forgot it meanwhile.
                if self._reading and not segments:
                    continue
                raise
            if segment is None:
                continue
            if segments and segment.first != segments[-1].after:
                raise JournalError(path, f"records from {segments[-1].after} on", f"those from {segment.first} on")
            segments.append(segment)
        return segments

    def _scan(self, path: Path, last: bool) -> _Segment | None:
        """Read a whole file; cut a torn end off the last one, or leave it out where it did not get its first record."""
        with reading(path):
            data = path.read_bytes()
        torn = len(data)
        frames: list[tuple[int, bytes]] = []
        try:
            if data[: len(_MAGIC)] != _MAGIC:
                raise JournalError(path, "a journal of this version", f"other bytes ({len(data)} in all)")
            for frame in _bodies(path, data[len(_MAGIC) :], len(_MAGIC)):
                frames.append(frame)
        except JournalError:
            torn = frames[-1][0] + _FRAME.size + len(frames[-1][1]) if frames else 0
            if not last or _group_after(data, torn):
                raise
        if not frames:
            if not self._reading:
                path.unlink()
            return None
        before = Before.FromString(frames[0][1])
        self._take(path, before)
        segment = _Segment(path, before.position, [offset for offset, _ in frames[1:]], torn)
        for _, body in frames[1:]:
            self._count(Record.FromString(body))
        return segment

    def _take(self, path: Path, before: Before) -> None:
        if before.stage != self.stage or self.attempt not in ("", before.attempt):
            raise JournalError(path, f"the journal of {self.stage} {self.attempt}".rstrip(), f"that of {before.stage}")
        if not self.attempt:
            self.attempt = before.attempt
            self.deduplication = Deduplication(before)
            self.decisions.update(before.decisions)

    def _begin_segment(self) -> None:
        position, self.attempt = self.end, self.attempt or secrets.token_hex(8)
        before = Before(stage=self.stage, attempt=self.attempt, position=position, decisions=self.decisions)
        self.deduplication.write_to(before)
        path, first = self.folder / f"{position:012d}{_SUFFIX}", _MAGIC + _framed(before.SerializeToString(), _FIRST)
        with writing(path):
            try:
                path.write_bytes(first)
                sync_file(path)
                sync_folder(self.folder)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        with self._access:
            self._segments = [*getattr(self, "_segments", []), _Segment(path, position, [], len(first))]
        self._continue(self._segments[-1])

    def _continue(self, segment: _Segment) -> None:
        """Open a file to append behind its last whole record."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with writing(segment.path):
            file = segment.path.open("r+b", buffering=0)
            try:
                file.truncate(segment.end)
                file.seek(segment.end)
                os.fsync(file.fileno())
            except OSError:
                file.close()
                raise
        self._file = file


def _framed(body: bytes, marker: bytes) -> bytes:
    return _FRAME.pack(marker, len(body), zlib.crc32(body)) + body


def _bodies(path: Path, data: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield each record's offset in its file and its bytes; `data` begins at the offset `begin`."""
    place = 0
    while place < len(data):
        if (body := _body(data, place)) is None:
            raise JournalError(path, f"a whole record at byte {begin + place}", "a damaged one")
        yield begin + place, body
        place += _FRAME.size + len(body)


def _body(data: bytes, place: int) -> bytes | None:
    """Return the bytes of the record at a place; None if there is no whole one."""
    if place + _FRAME.size > len(data):
        return None
    marker, size, digest = _FRAME.unpack_from(data, place)
    body = data[place + _FRAME.size : place + _FRAME.size + size]
    return body if marker in (_FIRST, _FURTHER) and len(body) == size and zlib.crc32(body) == digest else None


def _group_after(data: bytes, damaged: int) -> bool:
    """Return whether a group was written behind a damaged record: the one before was on disk by then, and not torn."""
    place = data.find(_FIRST, damaged + 1)
    while place >= 0:
        if _body(data, place) is not None:
            return True
        place = data.find(_FIRST, place + 1)
    return False


def _locked(folder: Path) -> FileLock:
    try:
        with writing(folder):
            make_folder(folder)
            return FileLock(folder / _LOCK)
    except HeldError as error:
        raise JournalError(folder, "no other process that writes it", "one", "end that process first") from error


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


class Deduplication:
    """The chunks that were taken, so that none is twice: ranges of sequences by `pc/game/boot`, never forgotten.

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
