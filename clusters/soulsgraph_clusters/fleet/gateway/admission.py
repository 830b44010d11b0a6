"""What a gateway decides: who may play and what, which chunks are learned from, and why the others are refused.

At the end of the module: the queue in which chunks wait to be written.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import check_columns, check_moments, encode_weights, to_bytes
from soulsgraph_clusters.fleet.protocol.settings import MOST_MESSAGE_BYTES, FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import JOURNALED, Journal, StoredChunk
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.agents.inference import Weights

#: The verdicts on chunks that are not learned from.
STALE, OTHER_STAGE, MALFORMED, ALTERED = "stale", "other stage", "malformed", "altered"
#: Published versions whose time is kept.
_MOST_VERSIONS = 10_000
_TICK_S = 0.1
#: Chunks wait for each other so long before they are written together.
GROUP_S = 0.05
#: A journal that cannot be written is tried again after so long; PCs keep their chunks meanwhile.
RETRY_AFTER_S = 1.0
#: When a stage ends, what was received has so long to be written, unless the journal cannot be written.
WRITE_WITHIN_S = 10.0
#: Chunks received and not yet written, and their bytes; with more, the games' streams are not read on.
MOST_WAITING, MOST_WAITING_BYTES = 1024, 64 * 2**20
#: Latest chunks of which the queue's age is known.
_MOST_AGES = 10_000

#: Weights at one moment: their version, the modules' weights, and the decisions received of each that learns.
Snapshot = tuple[int, Mapping[str, Weights], Mapping[str, int]]


class Admission:
    """Take chunks of one stage into its journal; `seed` is the stage's. Its methods may be called in any thread."""

    def __init__(self, journal: Journal, task: StageTask, seed: int, settings: FleetSettings) -> None:
        self.stage, self.task = journal.stage, task
        self.journal, self._seed, self._settings = journal, seed, settings
        self._description = task.to_json()
        self._writing, self._closed = threading.Lock(), False
        #: Of what frozen skills are to be played by; empty before it is known.
        self._frozen = b""
        #: The versions of the weights that went out, and when; the newest as messages.
        self._versions: list[int] = []
        self._published_s: list[float] = []
        self._messages: dict[tuple[int, bool], bytes] = {}

    @property
    def named_pcs(self) -> tuple[str, ...]:
        """The PCs that the fleet's file names; none where every PC with a token may play."""
        return self._settings.pcs

    def admit(self, connection: Connection) -> None:
        """Number a game's lanes; raises WriteError if that cannot be written down."""
        hello = connection.hello
        with self.journal.transaction():
            connection.first_lane = self.journal.first_lane(hello.pc, hello.game, hello.lanes)

    def task_for(self, connection: Connection) -> wire.Task:
        """Return what a game that was admitted is to play."""
        # A game that was started again has other fights than before.
        seed = derive_seeds(np.uint64(self._seed), connection.first_lane, int(connection.hello.boot, 16) % 2**63)
        return wire.Task(
            stage=self.journal.stage,
            attempt=self.journal.attempt,
            description=self._description,
            first_lane=connection.first_lane,
            seed=int(seed[0]) >> 1,
        )

    def published(self, version: int, now_s: float) -> None:
        """Note when a version of the weights went out."""
        if not self._versions or version > self._versions[-1]:
            self._versions.append(version)
            self._published_s.append(now_s)
            del self._versions[:-_MOST_VERSIONS], self._published_s[:-_MOST_VERSIONS]
        self._messages = {}

    def weights_message(self, snapshot: Snapshot, first: bool) -> bytes:
        """Return the message of offered weights as it is sent to every game; any thread may ask.

        It has all modules at first, then those that learn.
        """
        version, weights, decisions = snapshot
        kept, key = self._messages, (version, first)
        if key not in kept:
            sent = weights if first else {name: own for name, own in weights.items() if name in self.task.learns}
            message = wire.Weights(version=version, arrays=encode_weights(sent), decisions=decisions)
            kept[key] = to_bytes(wire.ToGame(weights=message))
        return kept[key]

    def stale_ticks(self, version: int, now_s: float) -> float:
        """Return for how many control ticks of a game at speed 1 newer weights than these have been out."""
        # Versions from before this gateway began are as old as the first that it published.
        newer = bisect_right(self._versions, version)
        return (now_s - self._published_s[newer]) / _TICK_S if newer < len(self._versions) else 0.0

    def freeze(self, weights: Mapping[str, Weights]) -> None:
        """Refuse what is played by other weights of frozen skills than these, if modules of all of them are there."""
        frozen = self.task.frozen
        if frozen and weights.keys() >= {*frozen.values()}:
            self._frozen = self.task.frozen_digest(weights.__getitem__)

    def write(
        self, group: Sequence[tuple[Connection, wire.Chunk]], now_s: float
    ) -> list[tuple[Connection, wire.Acknowledgement]]:
        """Write chunks to the journal, each with its verdict, and return the acknowledgements to send.

        Raises:
            WriteError: if the journal cannot be written; nothing is acknowledged then.
            FleetError: if the stage is over.
        """
        with self._writing:
            if self._closed:
                raise FleetError("journal: expected a stage under way, found its end; the next one takes this.")
            with self.journal.transaction():
                taken = [self._take(connection, chunk, now_s) for connection, chunk in group]
        answers: dict[tuple[Connection, str], wire.Acknowledgement] = {}
        for (connection, chunk), (verdict, decisions) in zip(group, taken, strict=True):
            answer = answers.setdefault((connection, chunk.boot), wire.Acknowledgement(boot=chunk.boot))
            answer.sequences.append(chunk.sequence)
            if verdict != JOURNALED:
                answer.refused[verdict] += decisions
        return [(connection, answer) for (connection, _), answer in answers.items()]

    def close(self) -> None:
        """Close the journal, once what is being written is there."""
        with self._writing:
            self._closed = True
            self.journal.close()

    def _take(self, connection: Connection, chunk: wire.Chunk, now_s: float) -> tuple[str, int]:
        """Write a chunk that is not there yet with its verdict; return that, and the decisions that it has."""
        pc, game, decisions = connection.hello.pc, connection.hello.game, sum(chunk.decisions.values())
        verdict = self._verdict(connection, chunk, now_s) or JOURNALED
        learned = verdict == JOURNALED
        lane = self.journal.first_lane(pc, game, connection.hello.lanes) if learned else 0
        # A message has no room for more.
        decisions = min(decisions, MOST_MESSAGE_BYTES)
        content = chunk.SerializeToString() if learned else None
        new = self.journal.append(StoredChunk(pc, game, chunk.boot, chunk.sequence, verdict, decisions, lane, content))
        # Of one that is there already the first verdict stands.
        return verdict if new else JOURNALED, decisions

    def _verdict(self, connection: Connection, chunk: wire.Chunk, now_s: float) -> str:
        # A message has no room for more.
        if sum(chunk.decisions.values()) > MOST_MESSAGE_BYTES:
            return MALFORMED
        if (chunk.stage, chunk.attempt) != (self.journal.stage, self.journal.attempt):
            return OTHER_STAGE
        if self.stale_ticks(chunk.weights_version, now_s) > self._settings.most_stale_ticks:
            return STALE
        # Who sends none is not compared: a bare client, as benchmarks have.
        if chunk.frozen and self._frozen not in (b"", chunk.frozen):
            return ALTERED
        try:
            check_moments(chunk)
            columns = check_columns(chunk.columns, self.task.spaces, self.task.terms)
        except FleetError:
            return MALFORMED
        found = columns.transitions
        counts = {name: len(part) for name, part in found.items()}
        # A lane beyond the game's own is another game's.
        most = {name: connection.hello.lanes * len(self.task.skills_of([name])) for name in found}
        lanes = [(part.lanes, most[name]) for name, part in found.items()]
        lanes += [(part.lanes, connection.hello.lanes) for part in columns.episodes.values()]
        own = all(one.max() < count for one, count in lanes)
        return "" if found and own and counts == dict(chunk.decisions) else MALFORMED


class ChunkQueue:
    """Let chunks wait, and write those that came within a moment together, with one fsync.

    `note` is called with why the journal cannot be written, and when it can be again. A game that plays frozen skills
    by other weights counts as one that has none from then on: it is to be sent all.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._waiting: asyncio.Queue[tuple[Connection, wire.Chunk, float]] = asyncio.Queue(MOST_WAITING)
        self._bytes = 0
        #: Whether chunks are taken, which is not so while a stage ends, and whether they are written: not between two.
        self._takes, self._writes = asyncio.Event(), asyncio.Event()
        #: Set while nothing can be written.
        self._fails = asyncio.Event()
        #: Seconds from a chunk's receipt until it is in the journal, of the latest chunks.
        self.ages_s: deque[float] = deque(maxlen=_MOST_AGES)
        #: Set whenever something was appended to the journal.
        self.appended = threading.Event()

    async def put(self, connection: Connection, chunk: wire.Chunk) -> None:
        """Let a chunk wait to be written; where too much waits already, its game is not the one that is silent."""
        connection.held = True
        try:
            await self._takes.wait()
            while self._bytes > MOST_WAITING_BYTES:
                await asyncio.sleep(GROUP_S)
            await self._waiting.put((connection, chunk, time.monotonic()))
            self._bytes += chunk.ByteSize()
        finally:
            connection.held, connection.heard_s = False, asyncio.get_running_loop().time()

    async def write(self) -> None:
        """Write what comes, and acknowledge it, until it is cancelled."""
        try:
            while True:
                await self._write_group()
        finally:
            self._fails.set()

    async def _write_group(self) -> None:
        group = [await self._waiting.get()]
        await asyncio.sleep(GROUP_S)
        while not self._waiting.empty():
            group.append(self._waiting.get_nowait())
        answers = await self._written([(connection, chunk) for connection, chunk, _ in group])
        self.appended.set()
        now_s = time.monotonic()
        self.ages_s.extend(now_s - received_s for _, _, received_s in group)
        for connection, answer in answers:
            connection.acknowledge(answer)
            # What an earlier process played says nothing of this one.
            if ALTERED in answer.refused and answer.boot == connection.hello.boot:
                self._note(f"{connection.name}: expected frozen skills to play by the stage's weights, found others")
                connection.weights_version = -1
        for _, chunk, _ in group:
            self._bytes -= chunk.ByteSize()
            self._waiting.task_done()

    async def _written(
        self, group: list[tuple[Connection, wire.Chunk]]
    ) -> list[tuple[Connection, wire.Acknowledgement]]:
        """Write a group, and try again while that fails."""
        loop = asyncio.get_running_loop()
        while True:
            await self._writes.wait()
            try:
                answers = await loop.run_in_executor(None, self._admission.write, group, loop.time())
            except SoulsGraphError as error:
                self._fails.set()
                self._note(str(error))
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            if self._fails.is_set():
                self._fails.clear()
                self._note("the journal is written again")
            return answers

    async def end_stage(self) -> None:
        """Wait until what came is acknowledged, or cannot be; that and what comes now waits for the next stage."""
        self._takes.clear()
        ends = [asyncio.create_task(end) for end in (self._waiting.join(), self._fails.wait())]
        await asyncio.wait(ends, timeout=WRITE_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        self._writes.clear()
        self._takes.set()

    def begin_stage(self, admission: Admission) -> None:
        """Let this admission write what waits and what comes."""
        self._admission = admission
        self._takes.set()
        self._writes.set()
