"""What a game PC keeps on disk: chunks until the head has acknowledged them, and whether a person paused its games.

Chunks are bounded, so that play never stops for them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_clusters.fleet.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.settings import FleetError
from soulsgraph_policies.atomic import WriteError, check_writable, whole_file, writing

MOST_BYTES = 256 * 2**20
#: Why a chunk was dropped.
FULL, DISK_FULL, DAMAGED = "spool full", "disk full", "damaged"
#: What the end of a stage or a pause leaves of a chunk that was begun.
UNFINISHED = "unfinished"
_CHECKSUM = struct.Struct("<I")
_SUFFIX, _NEW, _LOCK = ".chunk", ".new", "lock"
_MACHINE = re.compile(r"[0-9a-f]{16}")
#: Which start of the game's process, its boot, and the sequence in it: files in the order in which they were made,
#: whatever the clock said.
_NAME = re.compile(r"(\d{8,})-([0-9a-f]+)-(\d{12,})")

#: A chunk by the boot and the sequence in it.
Key = tuple[str, int]


@dataclass(frozen=True)
class _Kept:
    """A chunk that is kept; `decisions` is None for one of an earlier boot, which is read if need be."""

    path: Path
    size: int
    decisions: int | None = None


def machine_id(folder: Path) -> str:
    """Return the id of a PC by the folder of its spools; it is drawn where none is kept there."""
    file = folder / "machine"
    with suppress(OSError, UnicodeDecodeError):
        if _MACHINE.fullmatch(known := file.read_text()):
            return known
    drawn = secrets.token_hex(8)
    # A full disk stops no game; a folder that is no good at all is the spool's error.
    with suppress(WriteError), whole_file(file) as temporary:
        temporary.write_text(drawn)
    return drawn


class Spool:
    """Keep chunks in a folder of one game, a file each, the oldest dropped first; used by several threads.

    Chunks of earlier boots that are still there wait like those of this one. The sequences of a boot count from 1.

    Raises:
        FleetError: if another process uses the folder.
        WriteError: if it cannot be written.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self.boot = secrets.token_hex(8)
        #: Decisions of chunks that were dropped, by reason.
        self.lost: Counter[str] = Counter()
        self._sequence = 0
        self._access = threading.Lock()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        for unfinished in folder.glob(f"*{_NEW}"):
            unfinished.unlink()
        there = [(found, path) for path in folder.glob(f"*{_SUFFIX}") if (found := _NAME.fullmatch(path.stem))]
        files = sorted((int(found[1]), found[2], int(found[3]), path) for found, path in there)
        self._start = 1 + max((start for start, *_ in files), default=0)
        #: Every chunk, oldest first.
        self._kept = {(boot, number): _Kept(path, path.stat().st_size) for _, boot, number, path in files}
        self.bytes = sum(one.size for one in self._kept.values())

    def put(self, chunk: Chunk) -> Key | None:
        """Number a chunk and keep it, dropping the oldest where there is no room; None if the disk is full."""
        self._sequence += 1
        chunk.boot, chunk.sequence = self.boot, self._sequence
        key, body = (chunk.boot, chunk.sequence), chunk.SerializeToString()
        path = self._folder / f"{self._start:08d}-{self.boot}-{self._sequence:012d}{_SUFFIX}"
        decisions = sum(chunk.decisions.values())
        temporary = path.with_suffix(_NEW)
        try:
            temporary.write_bytes(_CHECKSUM.pack(zlib.crc32(body)) + body)
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            with self._access:
                self.lost[DISK_FULL] += decisions
            return None
        with self._access:
            self._kept[key] = _Kept(path, len(body) + _CHECKSUM.size, decisions)
            self.bytes += self._kept[key].size
            while self.bytes > self._most_bytes and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self.lost[FULL] += self._decisions(oldest)
                self._drop(oldest)
        return key

    def pending(self) -> list[Key]:
        """Return every chunk that is not acknowledged, oldest first."""
        with self._access:
            return [*self._kept]

    def read(self, boot: str, sequence: int) -> Chunk | None:
        """Return a chunk; None if it is gone, or was damaged and is dropped."""
        key = boot, sequence
        if (kept := self._kept.get(key)) is None:
            return None
        try:
            chunk = _chunk(kept.path)
        except OSError:
            return None  # Another program has it open, or the disk fails: it may be there the next time.
        if chunk is None:
            with self._access:
                # Acknowledged meanwhile, it is not lost.
                if key in self._kept:
                    self.lost[DAMAGED] += kept.decisions or 0
                    self._drop(key)
        return chunk

    def acknowledge(self, boot: str, sequences: Iterable[int]) -> None:
        """Forget chunks that the head has."""
        with self._access:
            for sequence in sequences:
                self._drop((boot, sequence))

    def close(self) -> None:
        """Release the folder; chunks stay."""
        self._lock.close()

    def _decisions(self, key: Key) -> int:
        """Return the decisions of a chunk that is kept; of an unreadable one of an earlier boot nobody knows them."""
        kept = self._kept[key]
        if kept.decisions is not None:
            return kept.decisions
        with suppress(OSError):
            chunk = _chunk(kept.path)
            return 0 if chunk is None else sum(chunk.decisions.values())
        return 0

    def _drop(self, key: Key) -> None:
        """Remove a chunk, if it is kept."""
        if (kept := self._kept.pop(key, None)) is not None:
            self.bytes -= kept.size
            with suppress(OSError):
                kept.path.unlink(missing_ok=True)


def free_mb(folder: Path) -> int:
    """Return the free megabytes where a PC's games keep chunks, or will.

    Raises:
        WriteError: if nothing can be written there.
    """
    check_writable(folder)
    with writing(folder):
        place = next(place for place in (folder, *folder.parents) if place.exists())
        return shutil.disk_usage(place).free // 2**20


def in_use(folder: Path) -> bool:
    """Return whether a process keeps chunks in a game's folder; raises WriteError if it cannot be written."""
    if not folder.exists():
        return False
    try:
        _lock(folder).close()
    except FleetError:
        return True
    return False


def _chunk(path: Path) -> Chunk | None:
    """Read a file; None if it is gone or damaged. Raises OSError if it cannot be read now."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body = data[_CHECKSUM.size :]
    with suppress(Exception):  # The parser's own error has no name that every release shares.
        if len(data) >= _CHECKSUM.size and _CHECKSUM.unpack_from(data)[0] == zlib.crc32(body):
            chunk: Chunk = Chunk.FromString(body)
            return chunk
    return None


class _lock:  # noqa: N801 - a function in all but its need to be closed
    """Hold a folder's lock until it is closed or this process ends."""

    def __init__(self, folder: Path) -> None:
        with writing(folder):
            self._handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.name == "nt":
                import msvcrt

                msvcrt.locking(self._handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            else:
                import fcntl

                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise FleetError(
                f"{folder}: expected no other process that plays this game, found one; end it, or name another "
                "folder for what is not yet sent."
            ) from error

    def close(self) -> None:
        """Release the lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


#: When the games stop.
AT_ONCE, AFTER_FIGHT = "at once", "after the fight"
_PAUSE_FILE = "paused"


def pause_file(spool: Path) -> Path:
    """Return the file that pauses the games which spool there."""
    return spool / _PAUSE_FILE


def read_pause(file: Path) -> str:
    """Return when the games are to stop; empty if they may play."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return AT_ONCE  # Whatever it says, a person wants a pause.
    return AFTER_FIGHT if text == AFTER_FIGHT else AT_ONCE


def pause(spool: Path, when: str) -> None:
    """Pause the games that spool in a folder, `AT_ONCE` or `AFTER_FIGHT`.

    Raises:
        FleetError: if no game has a spool there.
        WriteError: if the file cannot be written.
    """
    if not spool.is_dir():
        raise FleetError(f"{spool}: expected the spool of this PC's games, found no such folder; name theirs.")
    with whole_file(pause_file(spool)) as temporary:
        temporary.write_text(f"{when}\n", encoding="utf-8")


def resume(spool: Path) -> bool:
    """Let the games play again, and return whether they were paused.

    Raises:
        WriteError: if the file cannot be removed.
    """
    paused = pause_file(spool).exists()
    with writing(pause_file(spool)):
        pause_file(spool).unlink(missing_ok=True)
    return paused
