"""What a game PC keeps on disk: chunks until the head has acknowledged them, and whether a person paused its games.

Chunks are bounded, so that play never stops for them.
"""

from __future__ import annotations

import re
import secrets
import shutil
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_envs.core import files
from soulsgraph_envs.core.files import FileLock, HeldError, LockError

MOST_BYTES = 256 * 2**20
#: Chunks are synced together, so often at most: each by itself would cost a disk more than the play.
SYNC_EVERY_S = 1.0
#: Why a chunk was dropped.
FULL, DISK_FULL, DAMAGED = "spool full", "disk full", "damaged"
#: What the end of a stage or a pause leaves of a chunk that was begun.
UNFINISHED = "unfinished"
_CHECKSUM = struct.Struct("<I")
_SUFFIX, _NEW, _LOCK = ".chunk", ".new", "lock"
_MACHINE = re.compile(r"[0-9a-f]{16}")
#: Which start of the game's process, its boot, the sequence in it, and how many decisions: files in the order in which
#: they were made, whatever the clock said.
_NAME = re.compile(r"(\d{8,})-([0-9a-f]+)-(\d{12,})-(\d+)")

#: A chunk by the boot and the sequence in it.
Key = tuple[str, int]


@dataclass(frozen=True)
class _SpooledChunk:
    """A chunk that is kept, as its file is named."""

    path: Path
    size: int
    decisions: int


def machine_id(folder: Path) -> str:
    """Return the id of a PC by the folder of its spools; it is drawn where none is kept there."""
    file = folder / "machine"
    if known := _read_machine(file):
        return known
    drawn = secrets.token_hex(8)
    # A full disk stops no game; a folder that is no good at all is the spool's error.
    with suppress(files.WriteError, LockError), files.locked(folder):
        # Another process may have drawn one meanwhile.
        if known := _read_machine(file):
            return known
        files.write_text(file, drawn)
    return drawn


def _read_machine(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        if _MACHINE.fullmatch(known := file.read_text()):
            return known
    return ""


class Spool:
    """Keep chunks in a folder of one game, a file each, the oldest dropped first; used by several threads.

    Chunks of earlier boots that are still there wait like those of this one. The sequences of a boot count from 1.
    What was put is on the disk (`sync`) about `SYNC_EVERY_S` later, by a thread that lets no tick wait. Files of
    earlier boots that a power cut left empty or torn are dropped, counted and reported when the folder is opened.

    Raises:
        FleetError: if another process uses the folder.
        LockError: if its file system has no locks.
        WriteError: if it cannot be written.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, report: Callable[[str], None] | None = None) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self.boot = secrets.token_hex(8)
        #: Decisions of chunks that were dropped, by reason.
        self.lost: Counter[str] = Counter()
        self._sequence = 0
        self._access, self._sync_access = threading.Lock(), threading.Lock()
        with files.writing(folder):
            files.make_folder(folder)
        self._lock = _lock(folder)
        for unfinished in folder.glob(f"*{_NEW}"):
            unfinished.unlink()
        there = [(found, path) for path in folder.glob(f"*{_SUFFIX}") if (found := _NAME.fullmatch(path.stem))]
        chunks = sorted((int(found[1]), found[2], int(found[3]), int(found[4]), path) for found, path in there)
        self._start = 1 + max((start for start, *_ in chunks), default=0)
        #: Every chunk, oldest first.
        self._kept: dict[Key, _SpooledChunk] = {}
        self.bytes = 0
        self._open([((boot, number), decisions, path) for _, boot, number, decisions, path in chunks], report)
        self._unsynced: list[Key] = []
        self._put, self._closing = threading.Event(), threading.Event()
        self._syncing = threading.Thread(target=self._keep_syncing, name="spool", daemon=True)
        self._syncing.start()

    def _open(self, chunks: Sequence[tuple[Key, int, Path]], report: Callable[[str], None] | None) -> None:
        """Take up the chunks of earlier boots, and report those that are damaged."""
        damaged = 0
        for key, decisions, path in chunks:
            try:
                chunk, size = _chunk(path), path.stat().st_size
            except OSError:
                # Another program has it open, or the disk fails: it may be readable the next time.
                chunk, size = Chunk(), 0
            if chunk is None:
                damaged += 1
                self.lost[DAMAGED] += decisions
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            self._kept[key] = _SpooledChunk(path, size, decisions)
            self.bytes += size
        if damaged and report is not None:
            report(
                f"{self._folder}: expected whole chunks of earlier starts, found {damaged} empty or torn, as a power "
                f"cut leaves them; they are dropped and {self.lost[DAMAGED]} decisions counted as {DAMAGED}, "
                f"{len(self._kept)} chunks wait"
            )

    def put(self, chunk: Chunk) -> Key | None:
        """Number a chunk and keep it, dropping the oldest where there is no room; None if the disk is full."""
        self._sequence += 1
        chunk.boot, chunk.sequence = self.boot, self._sequence
        key, body = (chunk.boot, chunk.sequence), chunk.SerializeToString()
        decisions = sum(chunk.decisions.values())
        path = self._folder / f"{self._start:08d}-{self.boot}-{self._sequence:012d}-{decisions}{_SUFFIX}"
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
            self._kept[key] = _SpooledChunk(path, len(body) + _CHECKSUM.size, decisions)
            self.bytes += self._kept[key].size
            self._unsynced.append(key)
            while self.bytes > self._most_bytes and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self.lost[FULL] += self._kept[oldest].decisions
                self._drop(oldest)
        self._put.set()
        return key

    def sync(self) -> None:
        """Wait until every chunk that was put before is on the disk, as far as the disk can."""
        # What another thread took to sync is on the disk once it is done.
        with self._sync_access:
            with self._access:
                unsynced, self._unsynced = self._unsynced, []
            for key in unsynced:
                if (kept := self._kept.get(key)) is not None:
                    with suppress(OSError):
                        files.sync_file(kept.path)
                    if key not in self._kept:
                        # Windows removes no file that is open.
                        with suppress(OSError):
                            kept.path.unlink(missing_ok=True)
            if unsynced:
                with suppress(OSError):
                    files.sync_folder(self._folder)

    def _keep_syncing(self) -> None:
        while not self._closing.is_set():
            self._put.wait()
            self._put.clear()
            self.sync()
            self._closing.wait(SYNC_EVERY_S)

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
                    self.lost[DAMAGED] += kept.decisions
                    self._drop(key)
        return chunk

    def acknowledge(self, boot: str, sequences: Iterable[int]) -> None:
        """Forget chunks that the head has."""
        with self._access:
            for sequence in sequences:
                self._drop((boot, sequence))

    def close(self) -> None:
        """Sync the chunks, which stay, and release the folder."""
        self._closing.set()
        self._put.set()
        self._syncing.join()
        self.sync()
        self._lock.close()

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
    files.check_writable(folder)
    with files.writing(folder):
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


def _lock(folder: Path) -> FileLock:
    try:
        with files.writing(folder):
            return FileLock(folder / _LOCK)
    except HeldError as error:
        raise FleetError(
            f"{folder}: expected no other process that plays this game, found one; end it, or name another "
            "folder for what is not yet sent."
        ) from error


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
        raise FleetError(
            f"{spool}: expected the spool of this PC's games, found no such folder; start a host or name its folder."
        )
    files.write_text(pause_file(spool), f"{when}\n")


def resume(spool: Path) -> bool:
    """Let the games play again, and return whether they were paused.

    Raises:
        WriteError: if the file cannot be removed.
    """
    paused = pause_file(spool).exists()
    with files.writing(pause_file(spool)):
        pause_file(spool).unlink(missing_ok=True)
    return paused
