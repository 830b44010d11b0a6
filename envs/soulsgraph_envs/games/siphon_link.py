"""The Siphon link: a game on another machine, or on this one, read, written and played over gRPC.

Calls to a server have back-off, errors of one family, and bytes and pictures as values.
"""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from soulsgraph_envs.core import access
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.keys import KEYS, check_key, rgb_of
from soulsgraph_envs.games.link import GameSettings, LinkError, Reading, attach_within
from soulsgraph_envs.games.siphon_attributes import FORMATS, Attribute, ProcessInfo, load_attributes

#: A server answers a tap when it is over, which on a busy machine may be late: its keys are up again either way.
_SLACK_S = 5.0
_DIFFERENT: dict[str, str] = KEYS["siphon"]
_FROM_SIPHON = {name: key for key, name in _DIFFERENT.items()}
#: Every name Siphon knows.
SIPHON_KEYS = tuple(sorted(KEYS["siphon_names"]))


class SiphonKeys:
    """A key device over Siphon's InputKeyToggle; every key held is released by `close`.

    Siphon's own server can toggle keyboard keys; by its public source it can only tap mouse buttons.
    """

    def __init__(self, calls: SiphonCalls) -> None:
        self._calls = calls
        self._down: set[str] = set()

    def check(self, key: str) -> None:
        """Raise `GameError` if Siphon has no such key."""
        check_key(to_siphon(key), SIPHON_KEYS, "Siphon key")

    def press(self, key: str) -> None:
        """Send a key down; raises `LinkError` if the server cannot."""
        self._down.add(key)
        self._toggle(key, True)

    def release(self, key: str) -> None:
        """Send a key up; raises `LinkError` if the server cannot."""
        self._toggle(key, False)
        self._down.discard(key)

    def tap(self, keys: Iterable[str], hold_s: float, delay_s: float = 0.0) -> None:
        """Press keys in turn `delay_s` apart, hold them, release them in turn: one call, timed by the server."""
        names = [to_siphon(key) for key in keys]
        lasts_s = hold_s + 2 * delay_s * max(len(names) - 1, 0)
        hold_ms, delay_ms = round(hold_s * 1000), round(delay_s * 1000)
        self._calls.call("InputKeyTap", _SLACK_S + lasts_s, keys=names, hold_ms=hold_ms, delay_ms=delay_ms)

    def move_mouse(self, right: int, down: int, steps: int = 1) -> None:
        """Move the mouse by pixels, in steps of 10 ms."""
        self._calls.call("MoveMouse", _SLACK_S + steps * 0.02, delta_x=right, delta_y=down, steps=steps)

    def close(self) -> None:
        """Release every held key; a second call does nothing."""
        for key in sorted(self._down):
            self.release(key)

    def _toggle(self, key: str, down: bool) -> None:
        self._calls.call("InputKeyToggle", key=to_siphon(key), toggle=down)


def to_siphon(key: str) -> str:
    """Return Siphon's name of a key of the bindings: "left_shift" is LEFT_SHIFT, "mouse_left" is LEFT."""
    return _DIFFERENT.get(key, key.upper())


def from_siphon(name: str) -> str:
    """Return the bindings' name of a key that a Siphon client sent, in whatever case."""
    return _FROM_SIPHON.get(name.upper(), name.lower())


class SiphonLink:
    """A `Link` through a Siphon server; all reads of a tick are under way at once.

    `supplies` and `writes` follow from the attribute file that `settings.map` names. Siphon has no call for the focus:
    `focused` returns whether the server says that input is initialized. Each call may take `patience_s` longer than
    its time.

    Raises:
        GameError: for settings that cannot be used; nothing is called before `attach`.
    """

    version = ""

    def __init__(self, settings: GameSettings, patience_s: float = 0.0) -> None:
        if settings.pid:
            raise GameError(
                f"Siphon: expected no pid, found {settings.pid}: the server finds the game by its name; leave pid out."
            )
        self._file = load_attributes(settings.map)
        info = self._file.process_info
        self._process = ProcessInfo(settings.process or info.name, settings.window or info.window_name)
        self.calls = SiphonCalls(settings.host, patience_s)
        self.keys = SiphonKeys(self.calls)
        self.bindings = settings.bindings or self._file.bindings
        self._capturing = False
        self.supplies, self.writes = self._file.supplies, self._file.writable

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Configure the server and have it find the game by its name; retry with exponential back-off.

        `process_id` has no effect: the server decides which process it serves.

        Raises:
            LinkError: if the game is not found in time.
        """
        attach_within(timeout_s, self._attach)

    def read(self) -> Reading:
        """Return every field of `supplies`, by one call per block, all at the same time."""
        return self._read(CALL_TIMEOUT_S)

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; adjacent ones in one call.

        Raises:
            GameError: for a field that cannot be written, or a value that it cannot hold.
            LinkError: if the server cannot be reached or refuses.
        """
        if stray := sorted(values.keys() - self.writes):
            raise GameError(f"a write over Siphon: expected fields that it writes, found {', '.join(stray)}.")
        left = dict(values)
        for name, layout in self._file.writes.items():
            if layout.keys() <= left.keys():
                data = b"".join(place.encode(left.pop(field)) for field, place in layout.items())
                value = request_value(self._file.attributes[name], data)
                self.calls.call("SetAttribute", CALL_TIMEOUT_S, attributeName=name, **value)

    def focus(self) -> None:
        """Bring the game's window to the front, by initializing the input."""
        self.calls.call("InitializeInput")

    def focused(self) -> bool:
        """Return whether keys reach the game's window, according to the server."""
        return bool(self.calls.call("GetServerStatus").input_initialized)

    def capture(self) -> Picture:
        """Capture the game's window, which the server searches at the first call after `attach`.

        Raises:
            LinkError: if the server cannot.
        """
        if not self._capturing:
            self.calls.call("InitializeCapture", SEARCH_TIMEOUT_S)
            self._capturing = True
        taken = self.calls.call("CaptureFrame")
        return rgb_of(taken.frame, taken.height, taken.width)

    def close(self) -> None:
        """Release every key and disconnect from the server; a second call does nothing."""
        with suppress(LinkError):
            self.keys.close()
        self.calls.close()

    def _attach(self) -> None:
        self._capturing = False
        self.calls.configure(self._process, self._file.attributes)
        self.focus()
        self._read(SEARCH_TIMEOUT_S)

    def _read(self, timeout_s: float) -> Reading:
        reading: dict[str, float | str] = {}
        answers = self.calls.get(list(self._file.reads), timeout_s)
        for layout, data in zip(self._file.reads.values(), map(answer_bytes, answers), strict=True):
            reading |= {field: place.decode(data[place.at :][: place.size]) for field, place in layout.items()}
        return reading


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

__all__ = ["ANSWERS", "MESSAGE_LIMITS", "REQUESTS", "SiphonClient", "grpc", "messages", "service"]


class SiphonClient(pysiphon.SiphonClient):
    """pysiphon's own client, which reaches its server by no proxy, as ours do."""

    def __init__(self, host: str = "localhost:50051") -> None:
        super().__init__(host)
        super().close()
        self.channel: Any = grpc.insecure_channel(host, MESSAGE_LIMITS + access.NO_PROXY)
        self.stub = service.SiphonServiceStub(self.channel)


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
    return struct.pack(FORMATS[kind.removesuffix("_value")], value)


def request_value(attribute: Attribute, data: bytes) -> dict[str, Any]:
    """Return the value of a SetAttribute call by its name there, from the bytes of the attribute's fields."""
    return {f"{attribute.type}_value": any(data) if attribute.type == "bool" else attribute.decode(data)}


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
#: gRPC itself reconnects, at growing intervals; the first is short, as a game PC's server restarts quickly.
_BACK_OFF = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]
_LOG = logging.getLogger(__name__)


class SiphonCalls:
    """Call a Siphon server; a call that fails raises `LinkError`. Each may take `patience_s` longer than its time.

    Raises:
        GameError: for an address that is not HOST:PORT.
    """

    def __init__(self, host: str, patience_s: float = 0.0) -> None:
        self.host, self._patience_s = host, patience_s
        if not is_local(host):
            _LOG.warning(
                "Siphon server %s is reached without encryption: whoever is on the way can read and change the game; "
                "use a tunnel (ssh -L 50051:localhost:50051).",
                host,
            )
        self._channel = grpc.insecure_channel(host, MESSAGE_LIMITS + _BACK_OFF + access.NO_PROXY)
        self._stub = service.SiphonServiceStub(self._channel)

    def call(self, name: str, timeout_s: float = CALL_TIMEOUT_S, **values: object) -> Any:
        """Make a call by its name in the protocol, such as `call("GetServerStatus")`; return its answer.

        Raises:
            LinkError: if the server cannot be reached, or reports a failure.
        """
        return self._start(name, timeout_s, **values)()

    def configure(self, process: ProcessInfo, by_name: Mapping[str, Attribute]) -> None:
        """Send the server a process and its attributes, and have it find them; raises as `call`."""
        sent = [messages.ProcessAttributeProto(name=name, **asdict(each)) for name, each in by_name.items()]
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
            answers = call(request)
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
            future = call.future(request, timeout=timeout_s + self._patience_s)
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
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return LinkError(f"{place}: expected it to answer, found nobody there; start it, or correct `host`.")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return LinkError(f"{place}: expected an answer to {name} in time, found none; see if the game PC hangs.")
        return LinkError(f"{place}: {name} failed: {error.details()}")


def is_local(host: str) -> bool:
    """Return whether a server's address is this machine's, or this end of a tunnel.

    Raises:
        GameError: if it is not HOST:PORT, an IPv6 host in brackets.
    """
    try:
        return access.is_loopback(access.split_address(host)[0])
    except ValueError as error:
        raise GameError(
            f"Siphon: expected an address as HOST:PORT, found {host!r}; Siphon's own is localhost:50051."
        ) from error
