"""The head's end of every game's stream: tokens, tasks and weights out, chunks into the journal, acknowledged after it.

It runs in a thread of its own and never waits for learning. What arrives within a moment is written to the journal
together, with one fsync. A game that is silent for `SILENT_AFTER_S` counts as lost. At the end of the module: how the
head listens, and the preflight before a stage, in which every game only says who it is.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc

from soulsgraph_clusters.fleet.gateway.admission import WRITE_WITHIN_S, Admission, ChunkQueue, Snapshot
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections, Notes
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.certificates import credentials_of, read_identity
from soulsgraph_clusters.fleet.protocol.messages import check_chunk, check_hello, parse_message, to_bytes
from soulsgraph_clusters.fleet.protocol.settings import (
    DRAINED_REASON,
    METHOD,
    MOST_MESSAGE_BYTES,
    SERVICE,
    SILENT_AFTER_S,
    Fleet,
    FleetError,
    InUseError,
    play_digest,
)
from soulsgraph_clusters.fleet.protocol.task import projects_of_hello, require_projects
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, sent_token, token_hash
from soulsgraph_envs.core.access import plain_host, split_address
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import raise_open_files
from soulsgraph_policies.agents.inference import Weights

#: Weights go out at most this often, the newest only.
PUBLISH_EVERY_S = 1.0
_WATCH_EVERY_S = 0.5
#: When it ends, games have so long to read what is left for them.
_READ_WITHIN_S = 3.0
#: A gateway has ended by then, on a busy machine too: what came is written, what is left for games is read.
STOP_WITHIN_S = WRITE_WITHIN_S + _READ_WITHIN_S + 30.0
_START_TIMEOUT_S = 30.0

UNKNOWN_TOKEN = "token: expected one that the head issued to this PC, found none or another; ask for one at the head."
#: A stream that has not said who it is after so long is closed.
HELLO_WITHIN_S = 10.0
#: What a preflight answers.
_WAIT = "the head looks who is there, and trains nothing yet"
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    # A whole fleet may dial in one moment, as when its head is back: gRPC would drop calls at random from 1,000 waiting
    # ones on, and those that waited for half a minute.
    ("grpc.server.max_pending_requests", 16_384),
    ("grpc.server.max_pending_requests_hard_limit", 32_768),
    ("grpc.server_max_unrequested_time_in_server", 300),
]


class Gateway:
    """Serve the games of a fleet in a stage, and in others after it; games stay connected between two stages.

    Without an `admission` no stage has begun.

    Raises:
        FleetError: if it cannot listen where the settings say, or tokens or certificate cannot be used.
    """

    def __init__(self, fleet: Fleet, admission: Admission | None) -> None:
        self._settings = fleet.settings
        play_digest()  # Which takes a moment, in which no game is to wait.
        self._tokens = Tokens(fleet.folder / fleet.settings.tokens)
        self._credentials = credentials_of(read_identity(fleet.settings, fleet.folder))
        self.connections = Connections()
        self.notes = Notes()
        self.chunks, self._begun = ChunkQueue(self.notes.add), asyncio.Event()
        if admission is not None:
            self._admission = admission
            self.chunks.begin_stage(admission)
            self._begun.set()
        self._failure: BaseException | None = None
        self._snapshot: Snapshot | None = None
        #: Why it serves no longer, and tasks that let in the games which were connected before a stage.
        self._over, self._admissions = "", list[asyncio.Task[None]]()
        self._loop = asyncio.new_event_loop()
        self._listening = Future[int]()
        self._thread = threading.Thread(target=self._run, name="fleet gateway", daemon=True)
        self._thread.start()
        try:
            #: The port that it listens on.
            self.port = self._listening.result(_START_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise

    def _in_loop(self, work: Any, within_s: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)

    @property
    def appended(self) -> threading.Event:
        """What is set whenever something was appended to the journal."""
        return self.chunks.appended

    def publish(self, version: int, weights: Mapping[str, Weights], decisions: Mapping[str, int]) -> None:
        """Offer modules' weights to every game; the first call names all modules, later ones those that changed."""
        kept = {module: {name: array.copy() for name, array in own.items()} for module, own in weights.items()}
        self._loop.call_soon_threadsafe(self._take_snapshot, version, kept, dict(decisions))

    def _take_snapshot(self, version: int, weights: dict[str, Weights], decisions: dict[str, int]) -> None:
        self._snapshot = version, {**(self._snapshot[1] if self._snapshot else {}), **weights}, decisions
        self._renewed.set()

    def end_stage(self, reason: str) -> None:
        """Write what has come, and let every game wait for the next stage."""
        self._in_loop(self._end_stage(reason), STOP_WITHIN_S)

    def begin_stage(self, admission: Admission) -> None:
        """Let every game play what `admission` says from now on."""
        self._in_loop(self._begin_stage(admission), STOP_WITHIN_S)

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
        self._renewed = asyncio.Event()
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
            self._listening.set_result(port)
        except Exception as error:
            await self._server.stop(0.0)
            self._listening.set_exception(error)

    async def _end_stage(self, reason: str) -> None:
        if self._begun.is_set():
            # What is written is acknowledged; what comes later is the next stage's to refuse, or stays with the PCs.
            await self.chunks.end_stage()
            self._begun.clear()
            self._snapshot = None
            for connection in self.connections.live:
                # What it did not read yet would be taken for the next stage's.
                connection.weights = b""
                connection.send(wire.ToGame(stop=wire.Stop(reason=reason)))

    async def _begin_stage(self, admission: Admission) -> None:
        self._admission = admission
        self.connections.forget_closed()
        self.chunks.begin_stage(admission)
        self._begun.set()
        # Each by itself: admitting one may take long.
        self._admissions = [task for task in self._admissions if not task.done()]
        self._admissions += [self._loop.create_task(self._take_up(connection)) for connection in self.connections.live]

    async def _take_up(self, connection: Connection) -> None:
        """Let a game that was connected before the stage began play in it, or say why not."""
        try:
            await self._admit(connection)
        except SoulsGraphError as refusal:
            connection.refuse(str(refusal))
        except BaseException:
            connection.close()
            raise
        self._order(connection)

    async def _stop(self, reason: str) -> None:
        await self._end_stage(reason)
        # Games that wait for a stage learn that there is none.
        self._over = reason
        self._begun.set()
        for connection in self.connections.live:
            connection.finish()
        await self._server.stop(_READ_WITHIN_S)

    # A game's stream.

    async def _play(self, messages: AsyncIterator[bytes], context: Any) -> None:
        """Answer one stream: say who may play, then read chunks and send tasks, weights and acknowledgements."""
        token, address = sent_token(context.invocation_metadata()), host_of(context.peer())
        name, drained = self._holder_of(token)
        if not name:
            self._note_refusal(address, UNKNOWN_TOKEN)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN)
        try:
            first = await asyncio.wait_for(next_message(messages), HELLO_WITHIN_S)
            hello = parse_message(wire.FromGame, first, "PC").hello
            connection = Connection(hello, self._loop.time(), token=token_hash(token), address=address, drained=drained)
            check_hello(connection.hello, name, self._settings, address)
            connection.hello.pc = name
            if connection.hello.only_asks:
                await context.write(to_bytes(wire.ToGame(stop=wire.Stop(reason=self._asked(connection)))))
                return
            await self._admit(connection)
            # What it waited is not its game's silence.
            connection.heard_s = self._loop.time()
            replaced = self.connections.begin(connection)
        except (TimeoutError, SoulsGraphError) as refusal:
            reason = str(refusal) or f"fleet: expected a hello within {HELLO_WITHIN_S:g} s, found none; try again."
            if not self._over:
                self._note_refusal(name, reason)
            # A stream whose first message was too large is closed already.
            with suppress(grpc.aio.UsageError, asyncio.InvalidStateError):
                await context.write(to_bytes(wire.ToGame(stop=wire.Stop(reason=reason, refused=not self._over))))
            return
        self.connections.accept(name, address)
        if replaced is not None:
            replaced.close()
        else:
            self.notes.add(f"{connection.name} joined, playing by {connection.hello.driver}")
        self._order(connection)
        try:
            await self._both_ways(connection, messages, context)
        finally:
            connection.close()
            if self.connections.end(connection):
                self.notes.add(f"{connection.name} left{connection.reason and f': {connection.reason}'}")

    async def _admit(self, connection: Connection) -> None:
        """Let a game play in the present stage, or the next one between two; raises SoulsGraphError if it may not."""
        # Another stage may have begun meanwhile.
        while connection.admitted is not self._admission:
            await self._begun.wait()
            if self._over:
                raise FleetError(self._over)
            admission = self._admission
            self._require_projects(connection)
            # It writes down who plays.
            await self._loop.run_in_executor(None, admission.admit, connection)
            connection.admitted = admission

    def _asked(self, connection: Connection) -> str:
        """Return the stage that a game could play, which only asks for it; raises FleetError if it could not."""
        self._require_projects(connection)
        return self._admission.stage

    def _require_projects(self, connection: Connection) -> None:
        require_projects(self._admission.task.projects, projects_of_hello(connection.hello), connection.hello.pc)

    def _order(self, connection: Connection) -> None:
        """Let a game play, or let it play no longer where its PC is drained; one that is not admitted waits."""
        if not self._plays(connection):
            return
        if connection.drained:
            connection.send(wire.ToGame(stop=wire.Stop(reason=DRAINED_REASON, after_fight=True)))
            return
        connection.send(wire.ToGame(task=self._admission.task_for(connection)))
        connection.weights_version = -1
        self._send_weights(connection)

    def _plays(self, connection: Connection) -> bool:
        return self._begun.is_set() and not self._over and connection.admitted is self._admission

    def _holder_of(self, token: str) -> tuple[str, bool]:
        """Return the PC that a stream's token was issued for, empty if none was, and whether it is drained."""
        try:
            return self._tokens.holder_of(token)
        except FleetError as error:
            self.notes.add(str(error))
            return "", False

    async def _both_ways(self, connection: Connection, messages: AsyncIterator[bytes], context: Any) -> None:
        reading, sending, over = (
            self._loop.create_task(work)
            for work in (self._read(connection, messages), self._send(connection, context), connection.over.wait())
        )
        try:
            # A game that does not read keeps `sending` waiting, and is ended nevertheless.
            await asyncio.wait((sending, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, sending, over):
                task.cancel()
            await asyncio.gather(reading, sending, over, return_exceptions=True)

    async def _send(self, connection: Connection, context: Any) -> None:
        while not connection.closed:
            for message in await connection.waiting():
                await context.write(message)

    async def _read(self, connection: Connection, messages: AsyncIterator[bytes]) -> None:
        try:
            async for data in messages:
                connection.heard_s = self._loop.time()
                message = parse_message(wire.FromGame, data, "PC")
                if message.HasField("chunk"):
                    check_chunk(message.chunk)
                    await self.chunks.put(connection, message.chunk)
                elif message.HasField("health"):
                    self.notes.add_change(connection.name, connection.health, message.health)
                    connection.health, connection.health_s = message.health, connection.heard_s
        except FleetError as refusal:
            connection.refuse(str(refusal))
        except grpc.aio.UsageError:
            pass  # The stream was closed while it was read.
        connection.finish()

    # Weights.

    async def _publish(self) -> None:
        while True:
            await self._renewed.wait()
            self._renewed.clear()
            if self._snapshot is None:
                continue  # The stage ended meanwhile.
            self._admission.published(self._snapshot[0], self._loop.time())
            for connection in self.connections.live:
                self._send_weights(connection)
            await asyncio.sleep(PUBLISH_EVERY_S)

    def _send_weights(self, connection: Connection) -> None:
        if self._snapshot is not None and self._plays(connection) and connection.weights_version != self._snapshot[0]:
            connection.weights = self._admission.weights_message(self._snapshot, first=connection.weights_version == -1)
            connection.weights_version = self._snapshot[0]
            connection.wake()

    # Silence, and tokens that were revoked.

    async def _watch(self) -> None:
        """End streams of silent games and of revoked tokens; a gateway that stood still itself blames nobody."""
        while True:
            expected = self._loop.time() + _WATCH_EVERY_S
            await asyncio.sleep(_WATCH_EVERY_S)
            if (late_s := self._loop.time() - expected) > _WATCH_EVERY_S:
                for connection in self.connections.live:
                    connection.heard_s += late_s
            self._look_at_tokens()
            for connection in self.connections.live:
                self._send_weights(connection)
                if not connection.held and self._loop.time() - connection.heard_s > SILENT_AFTER_S:
                    connection.close(f"silent for {SILENT_AFTER_S:g} s")

    def _look_at_tokens(self) -> None:
        """End the streams of tokens that hold no longer, and order games by whether their PC is drained now."""
        try:
            known = self._tokens.known
        except FleetError as error:
            self.notes.add(str(error))
            return
        for connection in self.connections.live:
            own = known.get(connection.hello.pc)
            if own is None or own.sha256 != connection.token:
                connection.close("its token was revoked")
            elif own.drained != connection.drained:
                connection.drained = own.drained
                self._order(connection)

    def _note_refusal(self, who: str, reason: str) -> None:
        """Note why a PC may not play, once: it tries again every other second."""
        if self.connections.refuse(who, reason, self._loop.time()):
            self.notes.add(f"{who}: refused: {reason}")


def handler_of(play: Any) -> Any:
    """Return the handler of a server whose every stream is answered by `play`, in bytes."""
    method = grpc.stream_stream_rpc_method_handler(play)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


def bind(server: Any, listen: str, credentials: Any | None) -> int:
    """Let a server listen at HOST:PORT, by TLS where there are credentials, and return its port.

    The process may have as many connections from then on as the system allows.

    Raises:
        InUseError: if another program listens there.
        FleetError: if it is no address of this machine, or one that needs other rights.
    """
    raise_open_files()
    with suppress(RuntimeError):
        port = server.add_insecure_port(listen) if credentials is None else server.add_secure_port(listen, credentials)
        if port:
            return int(port)
    # gRPC does not say why.
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*split_address(listen), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            found = f"{error.strerror or error}; correct `listen`"
            raise FleetError(f"fleet: expected to listen at {listen}, found: {found}.") from error
    raise InUseError(
        f"fleet: expected to listen at {listen}, found another program that does; end it, or correct `listen`."
    )


async def next_message(messages: AsyncIterator[bytes]) -> bytes:
    """Return the next message of a stream.

    Raises:
        FleetError: if it has ended.
    """
    async for data in messages:
        return data
    raise FleetError("fleet: expected a hello, found the end of the stream; try again.")


def host_of(peer: str) -> str:
    """Return the host of a stream's other end, which gRPC names with its kind and a port, as `ipv4:10.0.0.7:40122`."""
    try:
        return plain_host(split_address(unquote(peer.partition(":")[2]))[0])
    except ValueError:
        return peer


class Preflight(Gateway):
    """Look who is there before a stage begins: listen as the fleet's gateway will, and let every game wait.

    `games` are those that could play, by PC and name, with what they said; `connections.refusals` has the others.

    Raises:
        FleetError: as `Gateway`.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.games: dict[str, wire.Hello] = {}
        super().__init__(fleet, None)

    @property
    def missing(self) -> dict[str, str]:
        """The PCs of the fleet's file that have not answered, each with the reason as far as the head knows it."""
        known = self._tokens.known
        # Copies: games come and are refused in the gateway's own thread meanwhile.
        seen = {name.partition("/")[0] for name in [*self.games]} | {*self.connections.refusals}
        return {
            pc: "has not answered" if pc in known else "has no token"
            for pc in self._settings.pcs
            if pc not in seen and not (pc in known and known[pc].drained)
        }

    async def _admit(self, connection: Connection) -> None:
        self._asked(connection)
        await self._begun.wait()
        raise FleetError(self._over)

    def _asked(self, connection: Connection) -> str:
        self.games[connection.name] = connection.hello
        self.connections.accept(connection.hello.pc)
        return _WAIT
