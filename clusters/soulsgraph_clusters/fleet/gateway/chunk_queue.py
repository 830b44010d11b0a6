"""Chunks that a gateway received, until they are in the journal and acknowledged; used in the gateway's thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from soulsgraph_clusters.fleet.gateway.admission import ALTERED, Takes
from soulsgraph_clusters.fleet.gateway.sessions import GameSession
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_envs.core.errors import SoulsGraphError

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


class ChunkQueue:
    """Let chunks wait, and write those that came within a moment together, with one fsync.

    `note` is called with why the journal cannot be written, and when it can be again. A game that plays frozen skills
    by other weights counts as one that has none from then on: it is to be sent all.
    """

    def __init__(self, intake: Takes, note: Callable[[str], None]) -> None:
        self._intake, self._note = intake, note
        self._waiting: asyncio.Queue[tuple[GameSession, wire.Chunk, float]] = asyncio.Queue(MOST_WAITING)
        self._bytes = 0
        #: Whether chunks are taken, which is not so while a stage ends, and whether they are written: not between two.
        self._takes, self._writes = asyncio.Event(), asyncio.Event()
        self.begin_stage(intake)
        #: Set while nothing can be written.
        self._fails = asyncio.Event()
        #: Seconds from a chunk's receipt until it is in the journal, of the latest chunks.
        self.ages_s: deque[float] = deque(maxlen=_MOST_AGES)
        #: Set whenever something was appended to the journal.
        self.appended = threading.Event()

    async def put(self, session: GameSession, chunk: wire.Chunk) -> None:
        """Let a chunk wait to be written; where too much waits already, its game is not the one that is silent."""
        session.held = True
        try:
            await self._takes.wait()
            while self._bytes > MOST_WAITING_BYTES:
                await asyncio.sleep(GROUP_S)
            await self._waiting.put((session, chunk, time.monotonic()))
            self._bytes += chunk.ByteSize()
        finally:
            session.held, session.heard_s = False, asyncio.get_running_loop().time()

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
        answers = await self._written([(session, chunk) for session, chunk, _ in group])
        self.appended.set()
        now_s = time.monotonic()
        self.ages_s.extend(now_s - received_s for _, _, received_s in group)
        for session, answer in answers:
            session.acknowledge(answer)
            # What an earlier process played says nothing of this one.
            if ALTERED in answer.refused and answer.boot == session.hello.boot:
                self._note(f"{session.name}: expected frozen skills to play by the stage's weights, found others")
                session.weights_version = -1
        for session, chunk, _ in group:
            if session.refused:
                session.send(wire.ToGame(stop=wire.Stop(reason=session.refused, refused=True)))
                session.reason = session.refused
                session.finish()
            self._bytes -= chunk.ByteSize()
            self._waiting.task_done()

    async def _written(
        self, group: list[tuple[GameSession, wire.Chunk]]
    ) -> list[tuple[GameSession, wire.Acknowledgement]]:
        """Write a group, and try again while that fails."""
        loop = asyncio.get_running_loop()
        while True:
            await self._writes.wait()
            try:
                answers = await loop.run_in_executor(None, self._intake.write, group, loop.time())
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

    def begin_stage(self, intake: Takes) -> None:
        """Let this intake write what waits and what comes."""
        self._intake = intake
        self._takes.set()
        self._writes.set()
