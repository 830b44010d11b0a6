"""For tests: a Siphon server in this process, whose game is a memory without a program."""

from __future__ import annotations

import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.siphon_attributes import FORMATS, PYTHON_TYPES, Attribute
from soulsgraph_envs.games.siphon_link import ANSWERS, SIPHON_KEYS, from_siphon, grpc, messages, service

# ruff: noqa: N802 (the names of the calls are the protocol)

#: Bytes behind each chain of pointers.
_BLOCK = 1 << 11


def _answers(method: Callable[[Any, Any], dict[str, Any] | None]) -> Callable[[Any, Any, Any], Any]:
    """Return a call's values as its answer; a failure as Siphon does: success False, and the reason."""
    answer = ANSWERS[method.__name__]

    @wraps(method)
    def call(self: FakeSiphon, request: Any, context: Any) -> Any:
        time.sleep(self.takes_s)
        try:
            with self.lock:
                return answer(**({"success": True, "message": "done"} | (method(self, request) or {})))
        except GameError as error:
            return answer(success=False, message=str(error))

    return call


class FakeSiphon(service.SiphonServiceServicer):
    """Serve the attributes that a client configures; those behind one chain of pointers share their bytes.

    Set `running` to False to let the game be gone, `takes_s` to slow every answer. `down` are the keys that are held,
    `asked` the names of the calls that change something. A call that names what the server lacks fails in its answer.
    """

    def __init__(self) -> None:
        self.running, self.takes_s, self.input = True, 0.0, False
        self.attributes: dict[str, Attribute] = {}
        self.blocks: defaultdict[tuple[Any, ...], bytearray] = defaultdict(lambda: bytearray(_BLOCK))
        self.down: set[str] = set()
        self.asked: list[str] = []
        self.lock = threading.RLock()

    def span(self, attribute: Attribute, at: int = 0, size: int = 0) -> memoryview:
        """View the bytes of an attribute, or `size` of them from `at` on."""
        start = attribute.offsets[-1] + at
        block = self.blocks[attribute.method, attribute.pattern, attribute.offsets[:-1]]
        return memoryview(block)[start : start + (size or attribute.size)]

    def picture(self) -> Picture:
        """Return what the window shows, (450, 800, 3)."""
        return np.full((450, 800, 3), (10, 20, 30), np.uint8)

    def hear(self, key: str, down: bool) -> None:
        """Send a key down or up."""
        (self.down.add if down else self.down.discard)(key)

    @_answers
    def SetProcessConfig(self, request: Any) -> None:
        for each in request.attributes:
            options: Any = (each.length, each.method or "aobscan", each.mask or 0xFF)
            self.attributes[each.name] = Attribute(tuple(each.offsets), each.type, each.pattern, *options)

    @_answers
    def InitializeMemory(self, request: Any) -> None:
        self.demand(self.running, "the game")

    @_answers
    def InitializeInput(self, request: Any) -> None:
        self.demand(self.running, "the window")
        self.input = True

    @_answers
    def InitializeCapture(self, request: Any) -> None:
        self.demand(self.running, "the window")

    @_answers
    def GetServerStatus(self, request: Any) -> dict[str, Any]:
        return {"message": "Server is running", "input_initialized": self.input}

    @_answers
    def GetAttribute(self, request: Any) -> dict[str, Any]:
        attribute = self.attribute(request.attributeName)
        return {f"{attribute.type}_value": attribute.decode(bytes(self.span(attribute)))}

    @_answers
    def SetAttribute(self, request: Any) -> None:
        self.asked.append(request.attributeName)
        attribute = self.attribute(request.attributeName)
        value = getattr(request, str(request.WhichOneof("value")))
        self.demand(type(value) is PYTHON_TYPES[attribute.type], f"a value of type {attribute.type}")
        span = self.span(attribute)
        if isinstance(value, bool):
            # Siphon writes 1 for a whole byte; of a part of it, every bit.
            bits = 1 if attribute.mask == 0xFF else attribute.mask
            value = bytes([span[0] & ~attribute.mask & 0xFF | bits * value])
        elif not isinstance(value, bytes):
            value = struct.pack(FORMATS[attribute.type], value)
        self.demand(len(value) <= len(span), f"at most {len(span)} bytes")
        span[: len(value)] = value

    def InputKeyTap(self, request: Any, context: Any) -> Any:
        self.asked += request.keys
        pressed = []
        for key in request.keys:
            if not self._toggled(key, True, context).success:
                break
            pressed.append(key)
            time.sleep(request.delay_ms / 1000)
        time.sleep(request.hold_ms / 1000)
        for key in reversed(pressed):
            self._toggled(key, False, context)
        done = len(pressed) == len(request.keys)
        return ANSWERS["InputKeyTap"](success=done, message="done" if done else "no such key")

    @_answers
    def InputKeyToggle(self, request: Any) -> None:
        self.demand(request.key.upper() in SIPHON_KEYS or request.key.endswith("_ARROW"), "a key")
        self.hear(from_siphon(request.key), request.toggle)

    @_answers
    def MoveMouse(self, request: Any) -> None:
        """Move nothing."""

    @_answers
    def CaptureFrame(self, request: Any) -> dict[str, Any]:
        picture = self.picture()
        bgra = np.dstack((picture[:, :, ::-1], np.full(picture.shape[:2], 255, np.uint8)))
        return {"frame": bgra.tobytes(), "width": picture.shape[1], "height": picture.shape[0]}

    def StreamFrames(self, request: Any, context: Any) -> Iterator[Any]:
        while context.is_active():
            taken = self.CaptureFrame(None, context)
            yield messages.FrameData(data=taken.frame, width=taken.width, height=taken.height, format="raw")
            time.sleep(0.03)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute that can be reached."""
        self.demand(self.running and name in self.attributes, name)
        return self.attributes[name]

    def _toggled(self, key: str, down: bool, context: Any) -> Any:
        return self.InputKeyToggle(messages.InputKeyToggleRequest(key=key, toggle=down), context)

    def demand(self, met: bool, what: str) -> None:
        """Let a call fail unless a condition is met."""
        if not met:
            raise GameError(f"the fake Siphon server: expected {what}, found none.")


@contextmanager
def serving(siphon: FakeSiphon, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve while the context lasts; yield the address, HOST:PORT."""
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    service.add_SiphonServiceServicer_to_server(siphon, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
