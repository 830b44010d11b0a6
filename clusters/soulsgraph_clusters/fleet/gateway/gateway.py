"""The head's end of every game's stream: tokens, tasks and weights out, chunks into the journal, acknowledged after it.

It runs in a thread of its own and never waits for learning. What arrives within a moment is written to the journal
together, with one fsync. A game that is silent for `SILENT_AFTER_S` counts as lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from typing import Any

import grpc

from soulsgraph_clusters.fleet.gateway.admission import Offer, Takes
from soulsgraph_clusters.fleet.gateway.chunk_queue import WRITE_WITHIN_S, ChunkQueue
from soulsgraph_clusters.fleet.gateway.folder import DRAINED_REASON, read_drained
from soulsgraph_clusters.fleet.gateway.serving import (
    HELLO_WITHIN_S,
    SERVER_OPTIONS,
    UNKNOWN_TOKEN,
    bind,
    bounded_chunk,
    check_hello,
    handler_of,
    host_of,
    next_message,
    parse_message,
    to_bytes,
)
from soulsgraph_clusters.fleet.gateway.sessions import GameSession, Notes, Sessions
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol import project_digests
from soulsgraph_clusters.fleet.protocol.security import Identity, Tokens, credentials_of, read_identity, sent_token
from soulsgraph_clusters.fleet.protocol.settings import CODE, SILENT_AFTER_S, Fleet, FleetError, digests
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.inference import Weights

#: Weights go out at most this often, the newest only.
PUBLISH_EVERY_S = 1.0
_WATCH_EVERY_S = 0.5
#: When it ends, games have so long to read what is left for them.
_READ_WITHIN_S = 3.0
#: A gateway has ended by then, on a busy machine too: what came is written, what is left for games is read.
STOP_WITHIN_S = WRITE_WITHIN_S + _READ_WITHIN_S + 30.0
_START_TIMEOUT_S = 30.0


class Gateway:
    """Serve the games of a fleet in a stage, and in others after it; without an `identity` the settings say which.

    Games stay connected between two stages.

    Raises:
        FleetError: if it cannot listen where the settings say, or tokens or certificate cannot be used.
    """

    def __init__(self, fleet: Fleet, intake: Takes, identity: Identity | None = None) -> None:
        self._settings, self._intake = fleet.settings, intake
        digests()  # Which takes a moment, in which no game is to wait.
        self._folder, self._drained = fleet.folder, frozenset[str]()
        self._tokens = Tokens(fleet.folder / fleet.settings.tokens)
        self._credentials = credentials_of(identity or read_identity(fleet.settings, fleet.folder))
        self.sessions = Sessions()
        self.notes = Notes()
        self._stamp = self._tokens.stamp
        self.chunks = ChunkQueue(intake, self.notes.add)
        self._failure: BaseException | None = None
        self._offer: Offer | None = None
        #: Why it serves no longer, and tasks that let in the games which were connected before a stage.
        self._over, self._admissions = "", list[asyncio.Task[None]]()
        self._loop = asyncio.new_event_loop()
        self._ready: asyncio.Future[int] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="fleet gateway", daemon=True)
        self._thread.start()
        try:
            #: The port that it listens on.
            self.port = self._in_loop(self._listening(), _START_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise

    def _in_loop(self, work: Any, within_s: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)

    async def _listening(self) -> int:
        return await self._ready

    def publish(self, version: int, weights: Mapping[str, Weights], decisions: Mapping[str, int]) -> None:
        """Offer modules' weights to every game; the first call names all modules, later ones those that changed."""
        kept = {module: {name: array.copy() for name, array in own.items()} for module, own in weights.items()}
        self._loop.call_soon_threadsafe(self._take_offer, version, kept, dict(decisions))

    def _take_offer(self, version: int, weights: dict[str, Weights], decisions: dict[str, int]) -> None:
        self._offer = version, {**(self._offer[1] if self._offer else {}), **weights}, decisions
        self._offered.set()

    def offered(self, known: int) -> bytes:
        """Return the newest weights for one who has those of the version `known`, or none and -1; empty if it has them.

        Any thread may ask.
        """
        offer = self._offer
        return b"" if offer is None or offer[0] == known else self._intake.weights_message(offer, first=known < 0)

    def end(self, names: Collection[str], reason: str) -> None:
        """End the streams of these games."""
        self._loop.call_soon_threadsafe(self._end_named, names, reason)

    def _end_named(self, names: Collection[str], reason: str) -> None:
        for session in self.sessions.live:
            if session.name in names:
                session.reason = reason
                session.close()

    def end_stage(self, reason: str) -> None:
        """Write what has come, and let every game wait for the next stage."""
        self._in_loop(self._end_stage(reason), STOP_WITHIN_S)

    def begin_stage(self, intake: Takes) -> None:
        """Let every game play what `intake` says from now on."""
        self._in_loop(self._begin_stage(intake), STOP_WITHIN_S)

    def stop(self, reason: str) -> None:
        """Write what has come, end the stage for every game, and stop serving."""
        if self._thread.is_alive():
            self._in_loop(self._stop(reason), STOP_WITHIN_S)
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._offered, self._begun = asyncio.Event(), asyncio.Event()
        self._begun.set()
        self._tasks = [
            self._loop.create_task(work()) for work in (self._serve, self._publish, self.chunks.write, self._watch)
        ]
        for task in self._tasks:
            task.add_done_callback(self._note_failure)
        try:
            self._loop.run_forever()
        finally:
            own = [*self._tasks, *self._admissions]
            for task in own:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*own, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failure = self._failure or task.exception()

    def check(self) -> None:
        """Raise what ended a part of the gateway: it would serve on, and acknowledge nothing any more."""
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers([handler_of(self._play)])
        try:
            port = bind(self._server, self._settings.listen, self._credentials)
            await self._server.start()
            self._ready.set_result(port)
        except Exception as error:
            await self._server.stop(0.0)
            self._ready.set_exception(error)

    async def _end_stage(self, reason: str) -> None:
        if self._begun.is_set():
            # What is written is acknowledged; what comes later is the next stage's to refuse, or stays with the PCs.
            await self.chunks.end_stage()
            self._begun.clear()
            self._offer = None
            for session in self.sessions.live:
                # What it did not read yet would be taken for the next stage's.
                session.weights = b""
                session.send(wire.ToGame(stop=wire.Stop(reason=reason)))

    async def _begin_stage(self, intake: Takes) -> None:
        self._intake = intake
        self.sessions.forget_closed()
        self.chunks.begin_stage(intake)
        self._begun.set()
        # Each by itself: admitting one may take long.
        self._admissions = [task for task in self._admissions if not task.done()]
        self._admissions += [self._loop.create_task(self._take_up(session)) for session in self.sessions.live]

    async def _take_up(self, session: GameSession) -> None:
        """Let a game that was connected before the stage began play in it, or say why not."""
        try:
            await self._admit(session)
        except SoulsGraphError as refusal:
            self._refuse(session, str(refusal))
        except BaseException:
            session.close()
            raise
        self._order(session)

    async def _stop(self, reason: str) -> None:
        await self._end_stage(reason)
        # Games that wait for a stage learn that there is none.
        self._over = reason
        self._begun.set()
        for session in self.sessions.live:
            session.finish()
        await self._server.stop(_READ_WITHIN_S)

    # A game's stream.

    async def _play(self, messages: AsyncIterator[bytes], context: Any) -> None:
        """Answer one stream: say who may play, then read chunks and send tasks, weights and acknowledgements."""
        token, address = sent_token(context.invocation_metadata()), host_of(context.peer())
        name = self._name_of(token)
        if not name:
            self._note_refusal(address, UNKNOWN_TOKEN)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN)
        try:
            first = await asyncio.wait_for(next_message(messages), HELLO_WITHIN_S)
            session = GameSession(parse_message(first).hello, self._loop.time(), token=token, address=address)
            check_hello(session.hello, name, self._settings, address)
            session.hello.pc = name
            if session.hello.only_asks:
                self._require_projects(session)
                await context.write(to_bytes(wire.ToGame(stop=wire.Stop(reason=self._intake.stage))))
                return
            await self._admit(session)
            # What it waited is not its game's silence.
            session.heard_s = self._loop.time()
            replaced = self.sessions.begin(session)
        except (TimeoutError, SoulsGraphError) as refusal:
            reason = str(refusal) or f"fleet: expected a hello within {HELLO_WITHIN_S:g} s, found none; try again."
            if not self._over:
                self._note_refusal(name, reason)
            # A stream whose first message was too large is closed already.
            with suppress(grpc.aio.UsageError, asyncio.InvalidStateError):
                await context.write(to_bytes(wire.ToGame(stop=wire.Stop(reason=reason, refused=not self._over))))
            return
        self.sessions.accept(name, address)
        if replaced is not None:
            replaced.close()
        else:
            older = "" if CODE in session.hello.digests else ", by code that it does not report"
            self.notes.add(f"{session.name} joined, playing by {session.hello.driver}{older}")
        self._look_at_drained()
        self._order(session)
        try:
            await self._both_ways(session, messages, context)
        finally:
            session.close()
            if self.sessions.end(session):
                self.notes.add(f"{session.name} left{session.reason and f': {session.reason}'}")

    async def _admit(self, session: GameSession) -> None:
        """Let a game play in the present stage, or the next one between two; raises SoulsGraphError if it may not."""
        # Another stage may have begun meanwhile.
        while session.admitted is not self._intake:
            await self._begun.wait()
            if self._over:
                raise FleetError(self._over)
            intake = self._intake
            self._require_projects(session)
            # It may have to ask another machine.
            await self._loop.run_in_executor(None, intake.admit, session)
            session.admitted, session.latest = intake, ("", 0)

    def _require_projects(self, session: GameSession) -> None:
        project_digests.require(self._intake.task.projects, project_digests.of_hello(session.hello), session.hello.pc)

    def _order(self, session: GameSession) -> None:
        """Let a game play, or let it play no longer where its PC is drained; one that is not admitted waits."""
        if not self._plays(session):
            return
        session.drained = session.hello.pc in self._drained
        if session.drained:
            session.send(wire.ToGame(stop=wire.Stop(reason=DRAINED_REASON, after_fight=True)))
            return
        session.send(wire.ToGame(task=self._intake.task_for(session)))
        session.weights_version = -1
        self._send_weights(session)

    def _plays(self, session: GameSession) -> bool:
        return self._begun.is_set() and not self._over and session.admitted is self._intake

    def _name_of(self, token: str) -> str:
        """Return the PC that a stream's token was issued for; empty if none was."""
        try:
            return self._tokens.name_of(token) or ""
        except FleetError as error:
            self.notes.add(str(error))
            return ""

    async def _both_ways(self, session: GameSession, messages: AsyncIterator[bytes], context: Any) -> None:
        reading, sending, over = (
            self._loop.create_task(work)
            for work in (self._read(session, messages), self._send(session, context), session.over.wait())
        )
        try:
            # A game that does not read keeps `sending` waiting, and is ended nevertheless.
            await asyncio.wait((sending, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, sending, over):
                task.cancel()
            await asyncio.gather(reading, sending, over, return_exceptions=True)

    async def _send(self, session: GameSession, context: Any) -> None:
        while not session.closed:
            for message in await session.waiting():
                await context.write(message)

    async def _read(self, session: GameSession, messages: AsyncIterator[bytes]) -> None:
        try:
            async for data in messages:
                session.heard_s = self._loop.time()
                message = parse_message(data)
                if message.HasField("chunk"):
                    chunk = bounded_chunk(message.chunk)
                    self._intake.require_room(session, chunk)
                    await self.chunks.put(session, chunk)
                elif message.HasField("health"):
                    self.notes.add_change(session.name, session.health, message.health)
                    session.health, session.health_s = message.health, session.heard_s
        except FleetError as refusal:
            self._refuse(session, str(refusal))
        except grpc.aio.UsageError:
            pass  # The stream was closed while it was read.
        session.finish()

    def _refuse(self, session: GameSession, reason: str) -> None:
        session.send(wire.ToGame(stop=wire.Stop(reason=reason, refused=True)))
        session.reason = reason
        session.finish()

    # Weights.

    async def _publish(self) -> None:
        while True:
            await self._offered.wait()
            self._offered.clear()
            if self._offer is None:
                continue  # The stage ended meanwhile.
            self._intake.published(self._offer[0], self._loop.time())
            for session in self.sessions.live:
                self._send_weights(session)
            await asyncio.sleep(PUBLISH_EVERY_S)

    def _send_weights(self, session: GameSession) -> None:
        if self._offer is not None and self._plays(session) and session.weights_version != self._offer[0]:
            session.weights = self._intake.weights_message(self._offer, first=session.weights_version < 0)
            session.weights_version = self._offer[0]
            session.wake()

    # Silence, and tokens that were revoked.

    async def _watch(self) -> None:
        """End streams of silent games and of revoked tokens; a gateway that stood still itself blames nobody."""
        while True:
            expected = self._loop.time() + _WATCH_EVERY_S
            await asyncio.sleep(_WATCH_EVERY_S)
            if (late_s := self._loop.time() - expected) > _WATCH_EVERY_S:
                for session in self.sessions.live:
                    session.heard_s += late_s
            self._look_at_drained()
            for session in self.sessions.live:
                if session.drained != (session.hello.pc in self._drained):
                    self._order(session)
                self._send_weights(session)
                if not session.held and self._loop.time() - session.heard_s > SILENT_AFTER_S:
                    session.reason = f"silent for {SILENT_AFTER_S:g} s"
                    session.close()
            if (stamp := self._tokens.stamp) != self._stamp and self._end_revoked():
                self._stamp = stamp

    def _end_revoked(self) -> bool:
        """End the streams of tokens that hold no longer, and return whether the tokens could be read."""
        try:
            valid = self._tokens.issued(session.token for session in self.sessions.live)
        except FleetError as error:
            self.notes.add(str(error))
            return False
        for session in self.sessions.live:
            if session.token not in valid:
                session.reason = "its token was revoked"
                session.close()
        return True

    def _look_at_drained(self) -> None:
        try:
            self._drained = read_drained(self._folder)
        except SoulsGraphError as error:
            self.notes.add(str(error))

    def _note_refusal(self, who: str, reason: str) -> None:
        """Note why a PC may not play, once: it tries again every other second."""
        if self.sessions.refuse(who, reason, self._loop.time()):
            self.notes.add(f"{who}: refused: {reason}")
