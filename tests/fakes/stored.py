"""Chunks as a journal keeps them, made and read by tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.store import JOURNALED, Journal, Key, Spool, StoredChunk


def stored(chunk: Chunk, pc: str = "attic", game: str = "1", refused: str = "", first_lane: int = 0) -> StoredChunk:
    """Return a chunk as a journal keeps it."""
    decisions, content = sum(chunk.decisions.values()), None if refused else chunk.SerializeToString()
    return StoredChunk(pc, game, chunk.boot, chunk.sequence, refused or JOURNALED, decisions, first_lane, content)


def decided(journal: Journal, sequence: int, **changes: Any) -> Chunk:
    """Return a chunk of 30 decisions of the lock-on by a journal's attempt, but for what is changed."""
    values = {"boot": "00000000000000b0", "stage": "lock_on", "attempt": journal.attempt, "weights_version": 1}
    values |= {"decisions": {"lock_on": 30}, "sequence": sequence} | changes
    count = min(sum(values["decisions"].values()), 1_000)
    return Chunk(**{"versions": [values["weights_version"]] * count, "ticks": range(count)} | values)


def append(journal: Journal, chunks: Iterable[StoredChunk]) -> list[StoredChunk]:
    """Write chunks together, and return those that are new."""
    with journal.transaction():
        return [chunk for chunk in chunks if journal.append(chunk)]


def everything(journal: Journal) -> list[StoredChunk]:
    """Return what a journal keeps."""
    return journal.read(journal.first, 10**6)


def message(chunk: StoredChunk) -> Chunk:
    """Return the message that a chunk is."""
    assert chunk.content is not None, f"it was refused as {chunk.verdict}"
    found: Chunk = Chunk.FromString(chunk.content)
    return found


def spooled(spool: Path) -> set[Key]:
    """Return the chunks of a PC's game that wait in the folder `spool`, which no host uses."""
    found: set[Key] = set()
    for folder in spool.glob("*/game-1"):
        with closing(Spool(folder)) as own:
            found |= {*own.pending()}
    return found
