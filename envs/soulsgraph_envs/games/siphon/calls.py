"""Calls to a Siphon server: messages, channel with token and back-off, errors of one family, bytes and pictures."""

from __future__ import annotations

import io
import logging
import os
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph_envs.core import access
from soulsgraph_envs.core.access import (
    PRIVATE,
    TOKEN_KEY,
    bearer,
    by_proxy,
    channel_options,
    is_loopback,
    new_token,
    read_token,
)
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.keyboard.device import rgb_of
from soulsgraph_envs.games.realtime.link import GameSettings, LinkError, RefusedError
from soulsgraph_envs.games.siphon.attributes import Attribute, ProcessInfo

try:
    import grpc
    import pysiphon
    from pysiphon.generated import siphon_service_pb2, siphon_service_pb2_grpc
except ImportError as error:
    raise GameError(
        f"Siphon: expected the packages grpcio and pysiphon, found {error}; install them with: {pip_install('siphon')}."
    ) from error

#: Names of the 17 calls and their messages; generated code, which type checkers cannot see into.
messages: Any = siphon_service_pb2
service: Any = siphon_service_pb2_grpc

_METHODS = messages.DESCRIPTOR.services_by_name["SiphonService"].methods
#: The message that each call takes, and the one that it answers with; of a stream, one of many.
REQUESTS: dict[str, Any] = {each.name: getattr(messages, each.input_type.name) for each in _METHODS}
ANSWERS: dict[str, Any] = {each.name: getattr(messages, each.output_type.name) for each in _METHODS}

#: Both ends take frames of any window; 100 MiB is what Siphon's own client and server allow.
MESSAGE_LIMITS = [
    ("grpc.max_receive_message_length", 100 * 1024 * 1024),
    ("grpc.max_send_message_length", 100 * 1024 * 1024),
]
#: What our server says of itself; Siphon's own says something else.
SERVER_NAME = "soulsgraph serve-siphon"

__all__ = ["ANSWERS", "MESSAGE_LIMITS", "REQUESTS", "SERVER_NAME", "SiphonClient", "grpc", "messages", "service"]


class SiphonClient(pysiphon.SiphonClient):
    """pysiphon's own client, which reaches its server by no proxy unless asked, as ours do."""

    def __init__(self, host: str = "localhost:50051") -> None:
        super().__init__(host)
        super().close()
        self.channel: Any = grpc.insecure_channel(host, MESSAGE_LIMITS + channel_options(host))
        self.stub = service.SiphonServiceStub(self.channel)


_FORMATS = {"int": "<i", "float": "<f"}


def answer_bytes(answer: Any) -> bytes:
    """Return the bytes of an attribute's value; a true "bool" has all bits set, so that any single bit reads true."""
    kind = answer.WhichOneof("value")
    if kind is None:
        raise LinkError("Siphon: expected a value with GetAttribute's success, found none; is the server damaged?")
    value = getattr(answer, kind)
    if kind == "array_value":
        return bytes(value)
    if kind == "bool_value":
        return b"\xff" if value else b"\0"
    return struct.pack(_FORMATS[kind.removesuffix("_value")], value)


def request_value(attribute: Attribute, data: bytes) -> dict[str, Any]:
    """Return the value of a SetAttribute call by its name there, from the bytes of the attribute's fields."""
    if attribute.type == "array":
        return {"array_value": data}
    if attribute.type == "bool":
        return {"bool_value": any(data)}
    return {f"{attribute.type}_value": struct.unpack(_FORMATS[attribute.type], data)[0]}


def streamed_picture(frame: Any) -> Picture:
    """Return a streamed frame, JPEG or BGRA, as (height, width, 3) RGB."""
    if frame.format == "jpeg":
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(frame.data)).convert("RGB"))
    return rgb_of(frame.data, frame.height, frame.width)


#: A call that the server does not answer by then has failed: the link's contract.
CALL_TIMEOUT_S = 1.0
#: A server may search all of a large module when it is first asked for an attribute.
SEARCH_TIMEOUT_S = 30.0
#: gRPC itself reconnects, ever more slowly; the first try comes soon, as a game PC's server restarts quickly.
_BACK_OFF = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]
_LOG = logging.getLogger(__name__)


class SiphonCalls:
    """Call a Siphon server; a call that fails raises `LinkError`. Each may take `patience_s` longer than its time.

    Raises:
        GameError: for an invalid address, or a token or certificate that cannot be read.
    """

    def __init__(self, settings: GameSettings, patience_s: float = 0.0) -> None:
        self.host, self._patience_s = settings.host, patience_s
        token = bearer(read_token(Path(settings.token_file), GameError)) if settings.token_file else ""
        self._metadata = ((TOKEN_KEY, token),) if token else ()
        self._channel = _open_channel(settings)
        self._stub = service.SiphonServiceStub(self._channel)
        _warn_if_bare(settings)

    def call(self, name: str, timeout_s: float = CALL_TIMEOUT_S, **values: object) -> Any:
        """Make a call by its name in the protocol, such as `call("GetServerStatus")`; return its answer.

        Raises:
            RefusedError: if the server refuses the token.
            LinkError: if the server cannot be reached, or reports a failure.
        """
        return self._start(name, timeout_s, **values)()

    def configure(self, process: ProcessInfo, attributes: Mapping[str, Attribute]) -> None:
        """Send the server a process and its attributes, and have it find them; raises as `call`."""
        sent = [messages.ProcessAttributeProto(name=name, **asdict(each)) for name, each in attributes.items()]
        names = {"process_name": process.name, "process_window_name": process.window_name}
        self.call("SetProcessConfig", CALL_TIMEOUT_S, attributes=sent, **names)
        self.call("InitializeMemory", SEARCH_TIMEOUT_S)

    def get(self, names: Sequence[str], timeout_s: float = CALL_TIMEOUT_S) -> list[Any]:
        """Return the answers with the values of attributes, all calls under way at once; raises as `call`."""
        started = [self._start("GetAttribute", timeout_s, attributeName=name) for name in names]
        return [finish() for finish in started]

    def stream(self, name: str, **values: object) -> Iterator[Any]:
        """Make a call that answers with a stream; raises as `call`. Closing the iterator ends it."""
        request, call = REQUESTS[name](**values), getattr(self._stub, name)
        try:
            answers = call(request, metadata=self._metadata)
        except ValueError as error:
            raise self._closed(name) from error
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._explained(name, error) from error
        finally:
            answers.cancel()

    def close(self) -> None:
        """Close the channel; a second call does nothing."""
        self._channel.close()

    def _start(self, name: str, timeout_s: float, **values: object) -> Callable[[], Any]:
        """Send a call; return the function that waits for its answer."""
        request, call = REQUESTS[name](**values), getattr(self._stub, name)
        try:
            future = call.future(request, timeout=timeout_s + self._patience_s, metadata=self._metadata)
        except ValueError as error:
            raise self._closed(name) from error
        return partial(self._finish, name, future)

    def _finish(self, name: str, future: Any) -> Any:
        try:
            answer = future.result()
        except grpc.RpcError as error:
            raise self._explained(name, error) from error
        except grpc.FutureCancelledError as error:
            raise self._closed(name) from error
        if not answer.success:
            raise LinkError(f"Siphon server {self.host}: {name} failed: {answer.message}")
        return answer

    def _closed(self, name: str) -> LinkError:
        return LinkError(f"Siphon server {self.host}: expected an open link for {name}, found a closed one.")

    def _explained(self, name: str, error: Any) -> LinkError:
        code, place = error.code(), f"Siphon server {self.host}"
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return RefusedError(f"{place}: {name} failed: {error.details()}")
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return LinkError(f"{place}{by_proxy(self.host)}: {_unreached(error.details())}.")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return LinkError(f"{place}: expected an answer to {name} in time, found none; see if the game PC hangs.")
        return LinkError(f"{place}: {name} failed: {error.details()}")


def _unreached(details: str) -> str:
    """Return why a server does not answer; only gRPC's text distinguishes a wrong encryption from a missing one."""
    if "handshake" in details or "Verification" in details:
        return (
            "expected the certificate of the settings, made out to this host, found another or none; "
            "copy the server's, or name the host as the certificate does"
        )
    return "expected it to answer, found nobody there; start it, or correct `host`, or `certificate` if it encrypts"


def _open_channel(settings: GameSettings) -> Any:
    split_address(settings.host)
    options = MESSAGE_LIMITS + _BACK_OFF + channel_options(settings.host)
    if not settings.certificate:
        return grpc.insecure_channel(settings.host, options)
    try:
        ssl.create_default_context(cafile=settings.certificate)
        certificate = Path(settings.certificate).read_bytes()
    except OSError as error:
        raise GameError(
            f"{settings.certificate}: expected the Siphon server's certificate, found {error}; copy it from there."
        ) from error
    return grpc.secure_channel(settings.host, grpc.ssl_channel_credentials(certificate), options)


def _warn_if_bare(settings: GameSettings) -> None:
    missing = unprotected(settings)
    if missing and not is_local(settings):
        _LOG.warning(
            "Siphon server %s is reached without %s: whoever is on the way can read and change the game; "
            "use a tunnel (ssh -L 50051:localhost:50051), or token_file and certificate.",
            settings.host,
            " and without ".join(missing),
        )


def is_local(settings: GameSettings) -> bool:
    """Return whether the server is this machine's, or at this end of a tunnel."""
    return is_loopback(split_address(settings.host)[0])


def unprotected(settings: GameSettings) -> list[str]:
    """Return what protects the way to the server, and is not in the settings."""
    protection = {"a token": settings.token_file, "encryption": settings.certificate}
    return [what for what, file in protection.items() if not file]


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, an IPv6 host in brackets.

    Raises:
        GameError: if it is not of that form.
    """
    try:
        return access.split_address(address)
    except ValueError as error:
        raise GameError(
            f"Siphon: expected an address as HOST:PORT, found {address!r}; Siphon's own is localhost:50051."
        ) from error


def read_or_create_token(path: Path) -> str:
    """Read a token, or make one in a new file of mode 600.

    Raises:
        GameError: as `read_token`; also if the file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        return read_token(path, GameError)
    except OSError as error:
        raise GameError(f"{path}: expected to make a token file there, found {error}; choose another place.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(new_token() + "\n")
    return read_token(path, GameError)
