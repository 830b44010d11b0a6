"""A gateway under many games' streams, beside a bare gRPC server that gets and sends the same messages."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from math import ceil
from pathlib import Path
from typing import Any

import grpc

from fakes.fleet_here import GatewayHere, random_weights
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_clusters.fleet.gateway.status import GameStatus
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import CODE, encode_columns, encode_weights
from soulsgraph_clusters.fleet.protocol.settings import METHOD, PROTOCOL, SERVICE, play_digest
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.protocol.tokens import token_metadata
from soulsgraph_clusters.fleet.store import JOURNALED
from soulsgraph_envs.core.access import NO_PROXY
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from speed import spread

BARE = "bare gRPC server"
#: Of a chunk.
DECISIONS = 10
_CLIENT_PROCESSES = 4
_CONNECTED_WITHIN_S = 600.0
_STEADY_AFTER_S = 2.0
#: What was in flight at the end of a measurement has arrived after so long.
_SETTLED_AFTER_S = 3.0
#: What the clients count.
_COUNTED = ("chunks", "acknowledged", "acknowledged_alone", "weights", "refused", "lost")
#: Those whose games the streams are in turn: a PC has at most 256 of them.
PCS = "attic", *(f"pc-{number}" for number in range(1, 50))
_SKILLS = "camera", "lock_on", "movement", "dodge"
#: The stage of every server here.
STAGE = "stage"


def bench_task() -> StageTask:
    """Return the stage in which dodge learns, but takes no update, and the skills upstream of it are played."""
    numbers = DQNHyperparameters(10**9, 100_000, num_steps_sampled_before_learning_starts=10**9)
    return StageTask("iudex-phase1", {name: name for name in _SKILLS}, {_SKILLS[-1]: numbers}, 10.0)


def _chunk(task: StageTask) -> wire.Chunk:
    """Return a chunk of decisions that were played."""
    sampler = task.sampler(make_game(1), 0)
    sampler.set_networks(task.networks(random_weights(task)))
    played = sampler.sample(DECISIONS)
    counts = {module: len(part) for module, part in played.transitions.items()}
    return wire.Chunk(lane_ticks=played.lane_ticks, decisions=counts, columns=encode_columns(played))


def _set_version(chunk: wire.Chunk, version: int) -> None:
    """Let a chunk's decisions be made by these weights, a tick after the other."""
    count = sum(chunk.decisions.values())
    chunk.versions[:], chunk.ticks[:], chunk.weights_version = [version] * count, range(count), version


class Server:
    """What is measured in its own process: CPU time between two calls."""

    address = ""
    #: What the streams of each PC carry.
    metadata: Sequence[tuple[tuple[str, str], ...]] = ((),)

    def __init__(self, folder: str) -> None:
        """Begin to serve; what is written lies in the folder."""

    def begin(self) -> None:
        """Begin to measure."""
        self._began = time.process_time(), time.perf_counter()

    def end(self) -> dict[str, float]:
        """Return what was used since."""
        cpu_s, wall_s = self._began
        return {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}

    def close(self) -> None:
        """End what the process itself would leave behind."""


class GatewayServer(Server):
    """A gateway with its journal in a folder, which offers new weights every second."""

    def __init__(self, folder: str) -> None:
        self._here = GatewayHere(Path(folder), bench_task())
        self._here.publish()
        self.address = self._here.address
        self.metadata = [token_metadata(self._here.head(pc).token) for pc in PCS]
        threading.Thread(target=self._publish, daemon=True).start()

    def _publish(self) -> None:
        while True:
            time.sleep(1.0)
            self._here.publish()

    def begin(self) -> None:
        """Begin to measure."""
        self._here.gateway.chunks.ages_s.clear()
        super().begin()

    def games(self) -> dict[str, tuple[float, GameStatus]]:
        """Return how every game that plays does, and when it said so."""
        said = {connection.name: connection.health_s for connection in self._here.gateway.connections.live}
        games = self._here.status.describe(self._here.version).games
        return {game.name: (said[game.name], game) for game in games if game.ticks and game.name in said}

    def end(self) -> dict[str, float]:
        """Return what was used since, and how long chunks waited to be in the journal."""
        ages = sorted(self._here.gateway.chunks.ages_s) or [0.0]
        p50, p99 = (1000.0 * ages[ceil(share * len(ages)) - 1] for share in (0.5, 0.99))
        decisions = self._here.journal.decisions.items()
        refused = sum(count for key, count in decisions if not key.endswith(f"/{JOURNALED}"))
        return {**super().end(), "queue_age_p50_ms": p50, "queue_age_p99_ms": p99, "refused_decisions": refused}


class BareServer(Server):
    """A gRPC server that answers each message with weights and an acknowledgement on them, of the gateway's sizes."""

    def __init__(self, _: str) -> None:
        task = bench_task()
        first, learns = random_weights(task), task.sampled
        weights = {name: own for name, own in first.items() if name in learns}
        order = wire.Task(stage=STAGE, attempt="0" * 16, description=task.to_json(), seed=1)
        self._greeting = [
            wire.ToGame(task=order).SerializeToString(),
            wire.ToGame(weights=wire.Weights(version=1, arrays=encode_weights(first))).SerializeToString(),
        ]
        newer = wire.Weights(version=2, arrays=encode_weights(weights))
        answer = wire.Acknowledgement(boot="0" * 16, sequences=[1])
        self._answer = wire.ToGame(weights=newer, acknowledged=[answer]).SerializeToString()
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True).start()
        started.wait()

    async def _serve(self, started: threading.Event) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(self._play)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})])
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        started.set()
        await server.wait_for_termination()

    async def _play(self, messages: AsyncIterator[bytes], context: Any) -> None:
        for greeting in self._greeting:
            await context.write(greeting)
        hello = True
        async for _ in messages:
            if not hello:
                await context.write(self._answer)
            hello = False


class _Clients:
    """Streams of many games in this process; each sends one chunk a second, at a moment of its own."""

    def __init__(
        self, address: str, metadata: Sequence[tuple[tuple[str, str], ...]], numbers: range, every: int
    ) -> None:
        self._address, self._metadata, self._every = address, metadata, every
        self._chunk, self.counts = _chunk(bench_task()), Counter[str]()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._left = len(numbers)
        self._ready = threading.Event()
        self._until_s = 0.0
        self._go = asyncio.Event()
        self._ends: list[str] = []
        for number in numbers:
            asyncio.run_coroutine_threadsafe(self._stream(number), self._loop).add_done_callback(self._note_end)
        if not self._ready.wait(_CONNECTED_WITHIN_S) or self._ends:
            ends = self._ends or ["they wait"]
            found = f"{self._left} without weights: {ends[0]}"
            raise SoulsGraphError(f"bench: expected {len(numbers)} streams, found {found}.")

    def _note_end(self, ended: Future[None]) -> None:
        """Note that a stream ended, and wait for the others no longer."""
        error = ended.exception()
        self._ends.append(" ".join(str(error or "it ended").split()))
        self._ready.set()

    def drive(self, seconds: float) -> dict[str, int]:
        """Send for some seconds, then wait for what is under way; return counts of messages."""
        self.counts.clear()
        self._until_s = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._go.set)
        time.sleep(seconds)
        self._loop.call_soon_threadsafe(self._go.clear)
        time.sleep(_SETTLED_AFTER_S)
        return dict(self.counts)

    async def _stream(self, number: int) -> None:
        # Games are different programs: none shares another's connection.
        options = [("grpc.use_local_subchannel_pool", 1), *NO_PROXY]
        channel = grpc.aio.insecure_channel(self._address, options=options)
        metadata = self._metadata[number % len(self._metadata)]
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
        boot, name = f"{number:016x}", f"{number:04d}"
        hello = wire.Hello(
            protocol=PROTOCOL, game=name, boot=boot, driver="bench", lanes=1, digests={CODE: play_digest()}
        )
        await call.write(wire.FromGame(hello=hello).SerializeToString())
        answer = wire.ToGame.FromString(await call.read())
        if answer.HasField("stop"):
            raise SoulsGraphError(answer.stop.reason)
        order = answer.task
        chunk = wire.Chunk()
        chunk.CopyFrom(self._chunk)
        chunk.boot, chunk.stage, chunk.attempt = boot, order.stage, order.attempt
        reading = asyncio.ensure_future(self._read_until_lost(call, chunk))
        while True:
            # A stream that says nothing counts as lost.
            while not self._go.is_set():
                await call.write(wire.FromGame(health=wire.Health()).SerializeToString())
                await asyncio.sleep(1.0)
            await asyncio.sleep(number % self._every / self._every)
            due_s = time.monotonic()
            while time.monotonic() < self._until_s and not reading.done():
                chunk.sequence += 1
                await call.write(wire.FromGame(chunk=chunk).SerializeToString())
                self.counts["chunks"] += 1
                due_s = max(due_s + 1.0, time.monotonic())
                await asyncio.sleep(due_s - time.monotonic())
            if reading.done():
                self.counts["lost"] += 1
                return

    async def _read_until_lost(self, call: Any, chunk: wire.Chunk) -> None:
        # The server ends before its clients; a stream that ends while they send counts as lost.
        with suppress(grpc.RpcError):
            await self._read(call, chunk)

    async def _read(self, call: Any, chunk: wire.Chunk) -> None:
        while (data := await call.read()) is not grpc.aio.EOF:
            message = wire.ToGame.FromString(data)
            for answer in message.acknowledged:
                self.counts["acknowledged"] += len(answer.sequences)
                self.counts["refused"] += sum(answer.refused.values())
            if message.WhichOneof("message") is None:
                self.counts["acknowledged_alone"] += 1
            if message.HasField("weights"):
                if not chunk.weights_version:
                    self._left -= 1
                    if not self._left:
                        self._ready.set()
                _set_version(chunk, message.weights.version)
                self.counts["weights"] += 1


#: What this process measures, or drives; kept between a worker's calls.
_here: list[Any] = []


def open_server(kind: type[Server], folder: str) -> tuple[str, Any]:
    """Serve from this process; return where, and what a call must carry."""
    _here.append(kind(folder))
    return _here[-1].address, _here[-1].metadata


def open_clients(address: str, metadata: Sequence[tuple[tuple[str, str], ...]], numbers: range, every: int) -> None:
    """Connect streams from this process; raises SoulsGraphError if one of them ends before all have weights."""
    _here.append(_Clients(address, metadata, numbers, every))


def call_here(method: str, *arguments: Any) -> Any:
    """Call a method of what this process has opened last."""
    return getattr(_here[-1], method)(*arguments)


def _measure(kind: type[Server], streams: int, seconds: float, folder: str) -> dict[str, float]:
    """Connect the streams, wait until they are steady, and measure for some seconds."""
    with ExitStack() as opened:
        server = opened.enter_context(WorkerProcess())
        server.submit(open_server, kind, folder)
        address, metadata = server.result()
        clients = [opened.enter_context(WorkerProcess()) for _ in range(min(_CLIENT_PROCESSES, streams))]
        for place, client in enumerate(clients):
            client.submit(open_clients, address, metadata, range(place, streams, len(clients)), streams)
        for client in clients:
            client.result()
        driven_s = seconds + 2.0 * _STEADY_AFTER_S
        for client in clients:
            client.submit(call_here, "drive", driven_s)
        time.sleep(_STEADY_AFTER_S)
        server.submit(call_here, "begin")
        server.result()
        time.sleep(seconds)
        server.submit(call_here, "end")
        found: dict[str, float] = server.result()
        counts = Counter[str]()
        for client in clients:
            counts.update(client.result())
        server.submit(call_here, "close")
        server.result()
    found["driven_s"] = driven_s
    return {**found, **{name: counts[name] for name in _COUNTED}}


def bench_streams(
    streams: int, seconds: float, rounds: int, folder: Path, driver: type[Server]
) -> Iterator[dict[str, Any]]:
    """Measure a bare server, a gateway, and a gateway with its `driver` in turn; journals are on the folder's disk.

    CPU times are those of a server's processes, all their threads; the queue's age is the time from a chunk's receipt
    until it is in the journal.
    """
    kinds: dict[str, type[Server]] = {
        BARE: BareServer,
        "gateway": GatewayServer,
        "gateway and driver without updates": driver,
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(rounds):
        for name, kind in kinds.items():
            with tempfile.TemporaryDirectory(dir=folder, prefix="journal-") as place:
                found[name].append(_measure(kind, streams, seconds, place))
    for name, measured in found.items():
        yield {
            "name": name,
            "streams": streams,
            "seconds": seconds,
            "rounds": rounds,
            "load": os.getloadavg()[0],
            "cores": spread([_cores(one) for one in measured]),
            **({} if name == BARE else _beyond(measured, found[BARE])),
            "measured": measured,
        }


def _cores(measured: Mapping[str, float]) -> float:
    return measured["cpu_s"] / measured["wall_s"]


def _beyond(measured: Sequence[Mapping[str, float]], bare: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return how much CPU time was used: as a multiple of the bare server's, and for each chunk beyond it."""

    def ms_a_chunk(one: Mapping[str, float]) -> float:
        return 1000.0 * _cores(one) / (one["chunks"] / one["driven_s"])

    pairs = list(zip(measured, bare, strict=True))
    return {
        "to_bare": spread([_cores(one) / _cores(other) for one, other in pairs]),
        "beyond_bare_ms_a_chunk": spread([ms_a_chunk(one) - ms_a_chunk(other) for one, other in pairs]),
    }
