"""How the head listens for games: the service and its limits, and what it refuses at the door."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import grpc

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import (
    BOUNDS,
    LONGEST_NAME,
    MOST_DECISIONS,
    MOST_MODULES,
    parse,
    plain,
    problem,
)
from soulsgraph_clusters.fleet.protocol.settings import (
    CODE,
    METHOD,
    METRICS_READER,
    MOST_MESSAGE_BYTES,
    PROTOCOL,
    SERVICE,
    FleetError,
    FleetSettings,
    digests,
)
from soulsgraph_envs.core.access import plain_host, split_address
from soulsgraph_envs.core.errors import shown
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.machine import raise_open_files

UNKNOWN_TOKEN = "token: expected one that the head issued to this PC, found none or another; ask for one at the head."
#: Characters of the name of a game or a driver.
_LONGEST_NAME = 60
#: Has the decisions of a chunk that said more.
_NO_MODULE = "?"
#: A stream that has not said who it is after so long is closed.
HELLO_WITHIN_S = 10.0
#: Lanes of a game at most.
MOST_LANES = 256
_BOOT = re.compile(r"[0-9a-f]{8,32}")
_REMEDY = "use the head's version of soulsgraph on the PC"
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


def handler_of(play: Any) -> Any:
    """Return the handler of a server whose every stream is answered by `play`, in bytes."""
    method = grpc.stream_stream_rpc_method_handler(play)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


def bind(server: Any, listen: str, credentials: Any | None) -> int:
    """Let a server listen at HOST:PORT, by TLS where there are credentials, and return its port.

    The process may have as many connections from then on as the system allows.

    Raises:
        FleetError: if it cannot listen there.
    """
    raise_open_files()
    try:
        port = server.add_insecure_port(listen) if credentials is None else server.add_secure_port(listen, credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise FleetError(
            f"fleet: expected to listen at {listen}, found that another program does or the address is not this "
            "machine's; end that program or correct `listen`."
        )
    return int(port)


def parse_message(data: bytes) -> wire.FromGame:
    """Return a game's message; raises as `parse`."""
    return parse(wire.FromGame, data, "PC")


async def next_message(messages: AsyncIterator[bytes]) -> bytes:
    """Return the next message of a stream.

    Raises:
        FleetError: if it has ended.
    """
    async for data in messages:
        return data
    raise FleetError("fleet: expected a hello, found the end of the stream; try again.")


def to_bytes(message: wire.ToGame) -> bytes:
    """Return a message as it is sent."""
    data: bytes = message.SerializeToString()
    return data


def check_hello(hello: wire.Hello, name: str, settings: FleetSettings, address: str = "") -> None:
    """Refuse a game that may not play; `name` is the one its token was issued for, `address` its machine's.

    Raises:
        FleetError: naming what differs.
    """
    if hello.protocol != PROTOCOL:
        expected, found = f"protocol {PROTOCOL}", f"{hello.protocol} of soulsgraph {plain(hello.version)}"
        raise FleetError(f"fleet: expected {expected}, found {found}; install the head's version on the PC.")
    if hello.pc not in ("", name):
        raise FleetError(f"fleet: expected the PC that the token was issued for, {name}, found {hello.pc[:40]!r}.")
    if name == METRICS_READER:
        raise FleetError(f"fleet: expected a PC's token, found that of {name}, which reads the metrics alone.")
    if settings.pcs and name not in settings.pcs:
        raise FleetError(f"fleet: expected a PC of the fleet's file, found {name}; add it there.")
    if not hello.game.isprintable() or "/" in hello.game or not 1 <= len(hello.game) <= _LONGEST_NAME:
        raise FleetError(f"{name}: expected a game's name of 1 to {_LONGEST_NAME} characters without a slash.")
    if not hello.driver.isprintable() or len(hello.driver) > _LONGEST_NAME:
        raise FleetError(f"{name}: expected a driver's name, found {shown(hello.driver)}; {_REMEDY}.")
    if not 1 <= hello.lanes <= MOST_LANES:
        raise FleetError(f"{name}: expected 1 to {MOST_LANES} lanes a game, found {hello.lanes}.")
    if hello.machine and not _BOOT.fullmatch(hello.machine):
        found = shown(hello.machine)
        raise FleetError(f"{name}: expected a machine's id of hexadecimal digits, found {found}; {_REMEDY}.")
    if not hello.only_asks and not _BOOT.fullmatch(hello.boot):
        raise FleetError(f"{name}: expected a boot id of hexadecimal digits, found {shown(hello.boot)}; {_REMEDY}.")
    if found := problem(hello):
        raise FleetError(f"{name}: expected {found}; {_REMEDY}.")
    if found := other_code(hello, settings):
        raise FleetError(f"{name}{address and f' ({address})'}: {found}.")


def other_code(hello: wire.Hello, settings: FleetSettings) -> str:
    """Return in what a game would play otherwise than the head, expected, found and remedy; empty if in nothing."""
    for what, digest in digests().items():
        there = hello.digests.get(what, "")
        if there == digest or (what == CODE and not there and settings.older_hosts):
            continue
        remedy = "install the head's version on the PC"
        if what == CODE and not there:
            remedy += ", or set `older_hosts = true` in the fleet's file to learn from whatever it plays"
        found = f"{plain(there[:12]) or 'none'} of soulsgraph {plain(hello.version) or 'unknown'}"
        head = installed_version()
        return f"expected the head's {what} ({digest[:12]} of version {head}), found {found}; {remedy}"
    return ""


def bounded_chunk(chunk: wire.Chunk) -> wire.Chunk:
    """Return a chunk as the journal may keep it, whatever its verdict.

    One that says more than any chunk can keeps its number and the count of its decisions, and no columns: it is refused
    by name like others that cannot be learned from, so that its PC does not send it again and again.

    Raises:
        FleetError: if nobody could say which chunk it is.
    """
    if not _BOOT.fullmatch(chunk.boot):
        raise FleetError(f"chunk: expected a boot id of hexadecimal digits, found {shown(chunk.boot)}; {_REMEDY}.")
    if chunk.sequence > BOUNDS["Chunk.sequence"].high:
        raise FleetError(f"chunk: expected {problem(wire.Chunk(sequence=chunk.sequence))}; {_REMEDY}.")
    chunk.DiscardUnknownFields()
    if not problem(chunk):
        return chunk
    return wire.Chunk(
        boot=chunk.boot,
        sequence=chunk.sequence,
        stage=chunk.stage[:LONGEST_NAME],
        attempt=chunk.attempt[:LONGEST_NAME],
        weights_version=min(chunk.weights_version, int(BOUNDS["Chunk.weights_version"].high)),
        decisions={_NO_MODULE: min(sum(chunk.decisions.values()), MOST_MODULES * MOST_DECISIONS)},
    )


def host_of(peer: str) -> str:
    """Return the host of a stream's other end, which gRPC names with its kind and a port, as `ipv4:10.0.0.7:40122`."""
    try:
        return plain_host(split_address(unquote(peer.partition(":")[2]))[0])
    except ValueError:
        return peer
