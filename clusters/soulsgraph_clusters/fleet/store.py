"""Chunks on disk, in an SQLite file: a stage's journal at the head, and a game's spool on its PC.

A chunk is in a file once, by its PC, game, boot and number, whole or not at all, and what was written is on the disk.
One process has a file at a time; its threads take turns.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.settings import FleetError, InUseError
from soulsgraph_envs.core.files import FullDiskError, WriteError, make_folder, writing
from soulsgraph_envs.core.machine import is_remote

#: The file of a store in its folder.
FILE = "chunks.sqlite"
#: A spool that is larger drops its oldest chunks.
MOST_SPOOL_BYTES = 256 * 2**20
#: The verdict of chunks that are learned from; those refused have the reason in its place.
JOURNALED = "journaled"
#: Why a chunk was dropped.
FULL, DISK_FULL = "spool full", "disk full"
#: What the end of a stage or a pause leaves of a chunk that was begun.
UNFINISHED = "unfinished"
_FORMAT = 3
#: What to do about a file that cannot be read.
_BEGIN_ANEW = "remove it: of a stage its checkpoints too, which begins anew then"
#: Of several processes that open it at once one has it after so long, and the others are refused.
_OTHERS_S = 0.5
#: Chunks that are forgotten together, and how long others may then write.
_FORGOTTEN_AT_ONCE, _TURN_S = 500, 0.005
#: What is known of a chunk for good, and apart from it what is forgotten once it was learned from.
_CHUNKS = (
    "CREATE TABLE chunks (position INTEGER PRIMARY KEY, pc TEXT, game TEXT, boot TEXT, number INTEGER, "
    "verdict TEXT, decisions INTEGER, first_lane INTEGER, UNIQUE (pc, game, boot, number))",
    "CREATE TABLE contents (position INTEGER PRIMARY KEY REFERENCES chunks ON DELETE CASCADE, content BLOB)",
)
#: Of a journal: the stage, the lanes of its games in the order in which they joined, and what each process of a game
#: counts.
_STAGE = (
    "CREATE TABLE stage (name TEXT, attempt TEXT, first INTEGER)",
    "CREATE TABLE lanes (pc TEXT, game TEXT, count INTEGER, first INTEGER, UNIQUE (pc, game, count))",
    "CREATE TABLE counts (name TEXT, boot TEXT, finished INTEGER, lost TEXT, PRIMARY KEY (name, boot)) WITHOUT ROWID",
)
#: Of a spool chunks leave at the front, so that the last one's position still is the highest.
_INSERT = "INSERT OR IGNORE INTO chunks SELECT COALESCE(MAX(position) + 1, 0), ?, ?, ?, ?, ?, ?, ? FROM chunks"
_SELECT = (
    "SELECT pc, game, boot, number, verdict, decisions, first_lane, content FROM chunks LEFT JOIN contents USING "
    "(position)"
)
_SUM = "SELECT pc || '/' || verdict, SUM(decisions), MAX(position) FROM chunks WHERE position >= ? GROUP BY pc, verdict"
_KEY = "(pc, game, boot, number) = (?, ?, ?, ?)"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNWRITABLE = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

#: A chunk of one game: its boot, and its number there.
Key = tuple[str, int]


class StoredChunk(NamedTuple):
    """A chunk as it is kept; `content` is the message, None where it was refused."""

    pc: str
    game: str
    boot: str
    number: int
    verdict: str
    decisions: int
    first_lane: int
    content: bytes | None

    @property
    def refused(self) -> str:
        """Why it is not learned from; empty where it is."""
        return "" if self.verdict == JOURNALED else self.verdict


class Store:
    """Open a file of chunks, made where it is missing, or to read it only.

    Raises:
        InUseError: if another process has it.
        FleetError: if it is damaged or of another format.
        WriteError: if it cannot be made or written.
    """

    _tables: tuple[str, ...] = _CHUNKS
    #: Pages of 4 kB after which the WAL is checkpointed: a PC's disk may be small.
    _wal_pages = 100

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self.folder, self._path = folder, folder / FILE
        self._access = threading.RLock()
        if not reading:
            with writing(folder):
                make_folder(folder)
        self._is_remote = is_remote(folder)
        # A file that may not be written is read only.
        uri = f"{self._path.absolute().as_uri()}?mode={'rw' if reading else 'rwc'}"
        with self._errors():
            # Autocommit: transactions are begun here.
            self._database = sqlite3.connect(uri, _OTHERS_S, uri=True, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._open(reading)
        except BaseException:
            self._database.close()
            raise

    def _open(self, reading: bool) -> None:
        # Before anything is read: the WAL of a killed process needs no shared memory then, for which a full disk has no
        # room. A remote disk has no WAL; there what a killed process left is in one file first.
        self._run("PRAGMA journal_mode = DELETE" if self._is_remote else "PRAGMA locking_mode = EXCLUSIVE")
        self._run("BEGIN" if reading else "BEGIN EXCLUSIVE")
        # From here on nobody else has it.
        self._run("PRAGMA locking_mode = EXCLUSIVE")
        is_new = not self._one("SELECT COUNT(*) FROM sqlite_master")
        if is_new and not reading:
            for table in self._tables:
                self._run(table)
            self._run(f"PRAGMA user_version = {_FORMAT}")
        if (found := self._one("PRAGMA user_version")) != _FORMAT:
            expected = f"expected format {_FORMAT}, found {found} of another version"
            raise FleetError(f"{self._path}: {expected}; {_BEGIN_ANEW}.")
        self._run("COMMIT")
        if not reading:
            self._run(f"PRAGMA journal_mode = {'TRUNCATE' if self._is_remote else 'WAL'}")
            self._run("PRAGMA synchronous = FULL")
            self._run("PRAGMA foreign_keys = ON")
            self._run(f"PRAGMA wal_autocheckpoint = {self._wal_pages}")

    def _run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._database.execute(statement, values)

    def _one(self, statement: str, *values: Any) -> Any:
        """Return the one value of a query's one row."""
        return self._run(statement, *values).fetchone()[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise SQLite's errors that are no bug as ours."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            # The lowest byte is the kind; the others say where.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind == sqlite3.SQLITE_FULL:
                raise FullDiskError(self._path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) from error
            if kind in _UNWRITABLE:
                raise WriteError(self._path, OSError(errno.EIO, str(error))) from error
            if kind == sqlite3.SQLITE_BUSY:
                raise InUseError(
                    f"{self._path}: expected to have it alone, found another process that uses it, or a disk without "
                    "locks; end that process, or name a folder on another disk."
                ) from error
            if kind in _DAMAGED:
                raise FleetError(
                    f"{self._path}: expected a file of chunks, found a damaged one ({error}); restore it from a copy, "
                    f"or {_BEGIN_ANEW}."
                ) from error
            raise

    @contextmanager
    def transaction(self, *, synced: bool = True) -> Iterator[None]:
        """Write what is written inside together, or nothing of it; it is on the disk at the end where it is `synced`.

        Raises:
            FullDiskError: if the disk has no room, or the file its size.
            WriteError: if it cannot be written.
        """
        with self._access, self._errors():
            # Without a WAL a power cut may damage a file that is not synced fully.
            self._run(f"PRAGMA synchronous = {'FULL' if synced or self._is_remote else 'NORMAL'}")
            self._run("BEGIN")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                # Some errors have ended it already.
                if self._database.in_transaction:
                    self._run("ROLLBACK")
                raise

    def _insert(self, chunk: StoredChunk) -> bool:
        """Write a chunk, within a transaction, and return whether it is new."""
        *known, content = chunk
        inserted = self._run(_INSERT, *known)
        if inserted.rowcount and content is not None:
            self._run("INSERT INTO contents VALUES (?, ?)", inserted.lastrowid, content)
        return bool(inserted.rowcount)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file that hold something; the others are used again."""
        with self._access, self._errors():
            pages = self._one("PRAGMA page_count") - self._one("PRAGMA freelist_count")
            return int(pages * self._one("PRAGMA page_size"))

    def close(self) -> None:
        """Leave one file, and let others have it; a second call does nothing."""
        with self._access:
            # On a full disk the next process does it.
            with suppress(sqlite3.Error):
                self._run("PRAGMA journal_mode = DELETE")
            self._database.close()


class Journal(Store):
    """The chunks of a stage, each with its verdict, in order: counted from 0 by their positions.

    It is not written while it would be larger than `most_bytes`, if that is not 0. `append` and `first_lane` are called
    within a `transaction`.

    Raises:
        FleetError: as `Store`, or if it is of another stage.
        WriteError: as `Store`.
    """

    _tables, _wal_pages = (*_CHUNKS, *_STAGE), 1000

    def __init__(self, folder: Path, stage: str, most_bytes: int = 0, *, reading: bool = False) -> None:
        super().__init__(folder, reading=reading)
        self.stage = stage
        #: Decisions by PC and verdict of the chunks before a position, which never change.
        self._summed, self._sums = 0, Counter[str]()
        self._lanes: dict[tuple[str, str, int], int] = {}
        try:
            if not reading:
                if most_bytes:
                    self._run(f"PRAGMA max_page_count = {most_bytes // self._one('PRAGMA page_size')}")
                with self.transaction():
                    row = stage, secrets.token_hex(8)
                    self._run("INSERT INTO stage SELECT ?, ?, 0 WHERE NOT EXISTS (SELECT * FROM stage)", *row)
            with self._errors():
                name, self.attempt = self._run("SELECT name, attempt FROM stage").fetchone()
        except BaseException:
            self.close()
            raise
        if name != stage:
            self.close()
            raise FleetError(
                f"{self._path}: expected the journal of {stage}, found that of {name}; name the stage's own folder."
            )

    @property
    def first(self) -> int:
        """The position of the oldest chunk whose content is kept."""
        return self._asked("SELECT first FROM stage")

    @property
    def end(self) -> int:
        """The position that the next chunk will have."""
        return self._asked("SELECT COALESCE(MAX(position) + 1, 0) FROM chunks")

    def _asked(self, query: str) -> int:
        with self._access, self._errors():
            return int(self._one(query))

    @property
    def decisions(self) -> Counter[str]:
        """Decisions by `PC/verdict`, since the journal began."""
        with self._access, self._errors():
            for key, decisions, last in self._run(_SUM, self._summed).fetchall():
                self._sums[key] += decisions
                self._summed = max(self._summed, last + 1)
            return self._sums.copy()

    def count(self, rows: Iterable[tuple[str, str, int, Mapping[str, int]]]) -> None:
        """Note what processes of games count by now: name of the game, boot, decisions finished, and lost by reason.

        Raises:
            WriteError: if it cannot be written.
        """
        written = [(name, boot, finished, json.dumps(lost)) for name, boot, finished, lost in rows]
        with self.transaction(synced=False):
            self._database.executemany("REPLACE INTO counts VALUES (?, ?, ?, ?)", written)

    @property
    def counted(self) -> dict[str, tuple[int, Counter[str]]]:
        """Decisions that all processes of each game finished, and lost by reason, by the game's name."""
        with self._access, self._errors():
            rows = self._run(
                "SELECT name, SUM(finished), json_group_array(json(lost)) FROM counts GROUP BY name"
            ).fetchall()
        return {name: (finished, sum(map(Counter, json.loads(lost)), Counter())) for name, finished, lost in rows}

    def append(self, chunk: StoredChunk) -> bool:
        """Write a chunk, unless it is there or was before its content was forgotten, and return whether it is new."""
        return self._insert(chunk)

    def read(self, position: int, most: int) -> list[StoredChunk]:
        """Return up to `most` chunks in order, from a position on.

        Raises:
            FleetError: if what was there is forgotten.
        """
        with self._access, self._errors():
            if position < self.first:
                raise FleetError(
                    f"{self._path}: expected the chunks from {position} on, found those from {self.first} on; older "
                    "ones went when two checkpoints had come after them."
                )
            rows = self._run(f"{_SELECT} WHERE position >= ? ORDER BY position LIMIT ?", position, most)
            return [StoredChunk(*row) for row in rows]

    @property
    def refused(self) -> dict[str, int]:
        """How many chunks were refused, by verdict."""
        with self._access, self._errors():
            query = "SELECT verdict, COUNT(*) FROM chunks WHERE verdict != ? GROUP BY verdict"
            return dict(self._run(query, JOURNALED).fetchall())

    def in_order(self) -> Iterator[StoredChunk]:
        """Yield the chunks that are kept and were not refused game by game, in the order in which they were played."""
        with self._access, self._errors():
            for row in self._run(f"{_SELECT} WHERE content IS NOT NULL ORDER BY pc, game, boot, number"):
                yield StoredChunk(*row)

    def prune(self, before: int) -> None:
        """Forget the contents of chunks before a position; that they were there is known for good."""
        # What a power cut brings back is forgotten the next time.
        with self.transaction(synced=False):
            self._run("UPDATE stage SET first = MAX(first, ?)", before)
        some = "SELECT position FROM contents WHERE position < ? LIMIT ?"
        forgotten = _FORGOTTEN_AT_ONCE
        while forgotten == _FORGOTTEN_AT_ONCE:
            with self.transaction(synced=False):
                query = f"DELETE FROM contents WHERE position IN ({some})"
                forgotten = self._run(query, before, _FORGOTTEN_AT_ONCE).rowcount
            # Chunks that come meanwhile are written in between.
            time.sleep(_TURN_S)

    def first_lane(self, pc: str, game: str, lanes: int) -> int:
        """Return the first of a game's lanes in the stage; a game of another number of lanes is another one."""
        key = pc, game, lanes
        if key in self._lanes:
            return self._lanes[key]
        found = self._run("SELECT first FROM lanes WHERE (pc, game, count) = (?, ?, ?)", *key).fetchone()
        if found is not None:
            self._lanes[key] = found[0]
            return int(found[0])
        # Its transaction may fail yet.
        new = "INSERT INTO lanes SELECT ?, ?, ?, COALESCE(SUM(count), 0) FROM lanes RETURNING first"
        return int(self._run(new, *key).fetchone()[0])


class Spool(Store):
    """The chunks of a game that the head has not acknowledged, of earlier boots too, in the order of play.

    Their numbers count from 1 in each boot. Where there is no room, the oldest are dropped. Used by several threads.

    Raises:
        FleetError: as `Store`.
        WriteError: as `Store`.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_SPOOL_BYTES) -> None:
        super().__init__(folder)
        self._most_bytes = most_bytes
        self.boot = secrets.token_hex(8)
        #: Decisions of chunks that were dropped, by reason.
        self.lost: Counter[str] = Counter()
        self._number = 0
        #: Acknowledged, and to be removed with the next that is written.
        self._acknowledged: list[Key] = []

    def put(self, chunk: Chunk) -> Key | None:
        """Number a chunk and keep it; None if the disk is full. It is on the disk then."""
        with self._access:
            self._number += 1
            chunk.boot, chunk.sequence = self.boot, self._number
            decisions = sum(chunk.decisions.values())
            kept = StoredChunk("", "", self.boot, self._number, "", decisions, 0, chunk.SerializeToString())
            try:
                with self.transaction():
                    self._insert(kept)
                    self._remove_acknowledged()
                    dropped = sum(self._drop_oldest())
            except WriteError:
                self.lost[DISK_FULL] += decisions
                return None
            self._acknowledged.clear()
            if dropped:
                self.lost[FULL] += dropped
            return self.boot, self._number

    def _drop_oldest(self) -> Iterator[int]:
        """Drop chunks until the others have room, and yield the decisions of each; the last one stays."""
        while self.size_bytes > self._most_bytes and self.waiting > 1:
            position, decisions = self._run("SELECT MIN(position), decisions FROM chunks").fetchone()
            self._run("DELETE FROM chunks WHERE position = ?", position)
            yield decisions

    def _remove_acknowledged(self) -> None:
        self._database.executemany(f"DELETE FROM chunks WHERE {_KEY}", [("", "", *key) for key in self._acknowledged])

    @property
    def waiting(self) -> int:
        """How many chunks are not acknowledged."""
        with self._access, self._errors():
            return int(self._one("SELECT COUNT(*) FROM chunks"))

    def pending(self) -> list[Key]:
        """Return every chunk that is not acknowledged, oldest first."""
        with self._access, self._errors():
            return self._run("SELECT boot, number FROM chunks ORDER BY position").fetchall()

    def read(self, boot: str, number: int) -> Chunk | None:
        """Return a chunk; None if it is gone."""
        with self._access, self._errors():
            found = self._run(f"{_SELECT} WHERE {_KEY}", "", "", boot, number).fetchone()
        message: Chunk | None = found and Chunk.FromString(StoredChunk(*found).content)
        return message

    def acknowledge(self, boot: str, numbers: Iterable[int]) -> None:
        """Forget chunks that the head has."""
        with self._access:
            self._acknowledged += [(boot, number) for number in numbers]
            # One that is there after all is sent again, and taken once.
            with suppress(WriteError):
                with self.transaction(synced=False):
                    self._remove_acknowledged()
                self._acknowledged.clear()
