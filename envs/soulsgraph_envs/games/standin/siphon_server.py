"""The Siphon server: one game of this machine, served over gRPC by Siphon's 17 link.

Attributes are found in its one process, read and written; keys and mouse are held for its clients.
"""

from __future__ import annotations

import hmac
import logging
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from typing import Any
from urllib.parse import unquote

import psutil

from soulsgraph_envs.core.access import TOKEN_KEY, bearer, join_address, plain_host, split_address
from soulsgraph_envs.core.config import Where, check_fields
from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.games import siphon_link
from soulsgraph_envs.games.address_map import compile_pattern
from soulsgraph_envs.games.guarded_device import open_key_device
from soulsgraph_envs.games.keys import MOUSE_BUTTONS, KeyDevice
from soulsgraph_envs.games.link import LinkError
from soulsgraph_envs.games.memory_reader import LinuxReader, Module, Reader
from soulsgraph_envs.games.siphon_attributes import FORMATS, PYTHON_TYPES, Attribute, Value, displacement_at
from soulsgraph_envs.games.standin.launch import ServingOptions
from soulsgraph_envs.games.standin.recording import Recordings, ServedWindow, Sources
from soulsgraph_envs.games.x11 import XTestDevice

# ruff: noqa: N802 (the names of the calls are the protocol)


_LOG = logging.getLogger(__name__)
#: More than streams, taps and mouse moves can keep, so that reads are always answered.
_THREADS = 24
#: A client whose machine is gone without a word is noticed after some of these, and its keys released.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.so_reuseport", 0),
]
#: A tap keeps one of the server's threads for no longer than this.
_LONGEST_TAP_S = 10.0
_MOST_MOUSE_STEPS, _MOST_PIXELS = 1000, 2**15 - 1


def _answers(method: Callable[[Any, Any, Any], dict[str, Any]]) -> Callable[[Any, Any, Any], Any]:
    """Return a call's values as its answer; a failure as Siphon does: success False, and the reason."""
    answer = siphon_link.ANSWERS[method.__name__]

    @wraps(method)
    def call(self: Any, request: Any, context: Any) -> Any:
        try:
            return answer(**({"success": True, "message": "done"} | method(self, request, context)))
        # Python's own word for what a client must not send, such as a path with a zero in it.
        except (SoulsGraphError, OSError, ValueError) as error:
            return answer(success=False, message=str(error))

    return call


class SiphonServer(siphon_link.service.SiphonServiceServicer):
    """Serve the process that `find_pid` names, until `close`; failures are reported as by Siphon's own server.

    Raises:
        GameError: as `ServingOptions.check`; also for an address, a file or a display that cannot be used.
    """

    def __init__(self, serving: ServingOptions, find_pid: Callable[[], int], captured_slots: bool = False) -> None:
        if not sys.platform.startswith("linux"):
            raise GameError("Siphon server: expected Linux, found another system; use Siphon's own server there.")
        serving.check()
        self._allow_commands, self._window_name = serving.allow_commands, ""
        self._game = ServedGame(find_pid, captured_slots)
        # Two, so that a picture, which takes long, never keeps the question for the focus waiting.
        self._window, self._camera = (ServedWindow(find_pid, serving.window, serving.display) for _ in range(2))
        self._desktop = DesktopInput(serving.display)
        self._keys = ServedKeys(open_key_device(serving.display), lambda: connected_clients(self.port))
        sources = Sources(self._camera.capture, self._number, self._desktop.down)
        self._recordings = Recordings(serving.recordings, sources)
        interceptors = [TokenCheck(siphon_link.read_or_create_token(serving.token_file))] if serving.token_file else []
        self._server = siphon_link.grpc.server(
            ThreadPoolExecutor(_THREADS, "siphon"),
            interceptors=interceptors,
            options=siphon_link.MESSAGE_LIMITS + _KEEPALIVE,
        )
        siphon_link.service.add_SiphonServiceServicer_to_server(self, self._server)
        self.port = self._listen(serving)
        self.address = join_address(split_address(serving.address)[0], self.port)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Serve until `close` is called or the time is over; return whether it still serves."""
        return bool(self._server.wait_for_termination(timeout_s))

    def close(self) -> None:
        """Stop: end every call, release every key, complete every recording. A second call does nothing."""
        stopped = self._server.stop(grace=0.5)
        # Taps, moves of the mouse and recordings under way end by this, and the calls with them.
        self._keys.close()
        self._recordings.close()
        self._desktop.close()
        stopped.wait()
        self._window.close()
        self._camera.close()
        self._game.close()

    def _listen(self, serving: ServingOptions) -> int:
        pair = serving.certificate_pair()
        if pair is None and serving.token_file is not None:
            _LOG.warning("Siphon server: the token can be read on its way to %s; add a certificate.", serving.address)
        try:
            if pair is None:
                port = self._server.add_insecure_port(serving.address)
            else:
                port = self._server.add_secure_port(serving.address, siphon_link.grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            self.close()
            raise serving.unusable_address(error) from error
        self._server.start()
        return int(port)

    def _number(self, name: str) -> float:
        """Read an attribute for a recording; of an array, its first four bytes as a float."""
        value = self._game.read(name)
        return struct.unpack("<f", value[:4].ljust(4, b"\0"))[0] if isinstance(value, bytes) else float(value)

    @_answers
    def SetProcessConfig(self, request: Any, context: Any) -> dict[str, Any]:
        """Set the process's name and the attributes to find in it."""
        attributes = {each.name: _attribute(each) for each in request.attributes}
        self._game.configure(request.process_name, attributes)
        self._window_name = request.process_window_name
        return {"message": f"{len(attributes)} attributes of {request.process_name}"}

    @_answers
    def InitializeMemory(self, request: Any, context: Any) -> dict[str, Any]:
        """Find the process and the patterns in it."""
        return {"process_id": self._game.attach()}

    @_answers
    def InitializeInput(self, request: Any, context: Any) -> dict[str, Any]:
        """Find the window and bring it to the front."""
        self._window.open(request.window_name or self._window_name)
        self._window.focus()
        return {}

    @_answers
    def InitializeCapture(self, request: Any, context: Any) -> dict[str, Any]:
        """Find the window and take a first picture."""
        size = self._camera.open(request.window_name or self._window_name)
        self._camera.capture()
        return {"window_width": size.width, "window_height": size.height}

    @_answers
    def GetServerStatus(self, request: Any, context: Any) -> dict[str, Any]:
        """Return what is initialized; the input only while keys reach the window."""
        return {
            "message": siphon_link.SERVER_NAME,
            "config_set": bool(self._game.process_name),
            "memory_initialized": bool(self._game.pid),
            "input_initialized": self._window.focused(),
            "capture_initialized": bool(self._camera.title),
            "process_name": self._game.process_name,
            "window_name": self._window.title or self._window_name,
            "process_id": self._game.pid,
        }

    @_answers
    def GetAttribute(self, request: Any, context: Any) -> dict[str, Any]:
        """Read one attribute."""
        value = self._game.read(request.attributeName)
        return next({f"{kind}_value": value} for kind, python in PYTHON_TYPES.items() if python is type(value))

    @_answers
    def SetAttribute(self, request: Any, context: Any) -> dict[str, Any]:
        """Write one attribute."""
        kind = request.WhichOneof("value")
        if kind is None:
            raise GameError(f"{request.attributeName}: expected a value to write, found none; send one.")
        self._game.write(request.attributeName, getattr(request, kind))
        return {}

    @_answers
    def InputKeyTap(self, request: Any, context: Any) -> dict[str, Any]:
        """Press keys, hold and release them."""
        hold_s, delay_s = request.hold_ms / 1000, request.delay_ms / 1000
        lasts_s = hold_s + 2 * delay_s * len(request.keys)
        if not request.keys or hold_s < 0 or delay_s < 0 or lasts_s > _LONGEST_TAP_S:
            raise GameError(f"InputKeyTap: expected keys for 0 to {_LONGEST_TAP_S:g} s, found {lasts_s:g} s.")
        keys = [siphon_link.from_siphon(key) for key in request.keys]
        self._keys.tap(client_name(context.peer()), keys, hold_s, delay_s)
        return {}

    @_answers
    def InputKeyToggle(self, request: Any, context: Any) -> dict[str, Any]:
        """Press or release one key; a client's keys are released when it disconnects."""
        change = self._keys.press if request.toggle else self._keys.release
        change(client_name(context.peer()), siphon_link.from_siphon(request.key))
        return {}

    @_answers
    def MoveMouse(self, request: Any, context: Any) -> dict[str, Any]:
        """Move the mouse by pixels."""
        if not 1 <= request.steps <= _MOST_MOUSE_STEPS:
            raise GameError(f"MoveMouse: expected 1 to {_MOST_MOUSE_STEPS} steps, found {request.steps}.")
        if max(abs(request.delta_x), abs(request.delta_y)) > _MOST_PIXELS:
            raise GameError(f"MoveMouse: expected at most {_MOST_PIXELS} pixels, found more; move in parts.")
        self._desktop.move_mouse(request.delta_x, request.delta_y, request.steps)
        return {}

    @_answers
    def CaptureFrame(self, request: Any, context: Any) -> dict[str, Any]:
        """Capture the window, BGRA."""
        picture = self._camera.capture()
        return {"frame": picture.tobytes(), "width": picture.shape[1], "height": picture.shape[0]}

    def StreamFrames(self, request: Any, context: Any) -> Iterator[Any]:
        """Send pictures, JPEG or BGRA, until the client has enough."""
        try:
            for values in self._camera.stream(request.format or "jpeg", request.quality or 85, context.is_active):
                yield siphon_link.messages.FrameData(**values)
        except GameError as error:
            context.abort(siphon_link.grpc.StatusCode.FAILED_PRECONDITION, str(error))

    @_answers
    def ExecuteCommand(self, request: Any, context: Any) -> dict[str, Any]:
        """Run a program, where the server's user has allowed that."""
        if not self._allow_commands:
            raise GameError("ExecuteCommand: refused; only a server with `allow_commands` runs commands.")
        program, timeout_s = [request.command, *request.args], request.timeout_seconds
        output = subprocess.PIPE if request.capture_output else subprocess.DEVNULL
        begun, folder = time.perf_counter(), request.working_directory or None
        # A session of its own, whose programs are killed together if they last too long, or nobody waits any more.
        child = subprocess.Popen(
            program, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        context.add_callback(lambda: _kill(child))
        try:
            written, complaints = child.communicate(timeout=timeout_s or None)
        except subprocess.TimeoutExpired as error:
            _kill(child)
            child.communicate()
            wanted = f"expected it to end within {timeout_s:g} s, it did not; allow more"
            raise GameError(f"{request.command}: {wanted}.") from error
        return {
            "success": child.returncode == 0,
            "exit_code": child.returncode,
            "stdout_output": (written or b"").decode(errors="replace"),
            "stderr_output": (complaints or b"").decode(errors="replace"),
            "execution_time_ms": round((time.perf_counter() - begun) * 1000),
        }

    @_answers
    def StartRecording(self, request: Any, context: Any) -> dict[str, Any]:
        """Begin to record."""
        names, where = list(request.attribute_names), request.output_directory
        return {"session_id": self._recordings.start(names, where, request.max_duration_seconds)}

    @_answers
    def StopRecording(self, request: Any, context: Any) -> dict[str, Any]:
        """End a recording."""
        recording = self._recordings.stop(request.session_id)
        return {
            "message": recording.file.name,
            "total_frames": recording.frames,
            "average_latency_ms": recording.sum_ms / max(recording.frames, 1),
            "dropped_frames": recording.dropped,
            "actual_duration_seconds": recording.elapsed_s,
            "actual_fps": recording.frames / max(recording.elapsed_s, 1e-9),
        }

    @_answers
    def GetRecordingStatus(self, request: Any, context: Any) -> dict[str, Any]:
        """Return how far a recording is."""
        recording = self._recordings.session(request.session_id)
        return {
            "message": recording.failure or recording.file.name,
            "is_recording": recording.running,
            "current_frame": recording.frames,
            "elapsed_time_seconds": recording.elapsed_s,
            "current_latency_ms": recording.last_ms,
            "dropped_frames": recording.dropped,
        }

    def DownloadRecording(self, request: Any, context: Any) -> Iterator[Any]:
        """Send a recording's file."""
        try:
            for piece in self._recordings.pieces(request.session_id):
                yield siphon_link.messages.RecordingChunk(**piece)
        except (SoulsGraphError, OSError) as error:
            context.abort(siphon_link.grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _attribute(message: Any) -> Attribute:
    """Read an attribute as clients send it: an empty method is a scan, a mask of 0 was never set."""
    method: Any = message.method or "aobscan"
    mask = message.mask or 0xFF
    return Attribute(tuple(message.offsets), message.type, message.pattern, message.length, method, mask)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a program and its session if it still runs; the id of an ended one may belong to another."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


class TokenCheck(siphon_link.grpc.ServerInterceptor):
    """Refuse every call that does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token).encode()
        self._refuse = siphon_link.grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Let a call through, or answer it UNAUTHENTICATED."""
        given = next((value for key, value in details.invocation_metadata if key == TOKEN_KEY), "")
        return continuation(details) if hmac.compare_digest(given.encode(), self._expected) else self._refuse


def _refuse(request: object, context: Any) -> None:
    context.abort(
        siphon_link.grpc.StatusCode.UNAUTHENTICATED,
        "this server asks for its token: name a copy of its token file as token_file, or come through a tunnel "
        "to a server that listens on 127.0.0.1",
    )


#: Siphon counts every displacement from here.
_LENGTH = 7
#: Where the stand-in keeps what a hook at a pattern would capture: right before it.
_SLOT_AT = -8
#: Attributes of all clients together.
_MOST_ATTRIBUTES = 4096


class ServedGame:
    """Read and write the attributes of one process, from all clients' configurations.

    `find` returns the process's id, or raises `LinkError` while it does not run. `captured_slots` says that
    the process is the stand-in, which keeps captured pointers of the method "dll" in its memory; in any
    other process that method would need injected code, and is refused.
    """

    def __init__(
        self, find: Callable[[], int], captured_slots: bool = False, open_reader: Callable[[int], Reader] = LinuxReader
    ) -> None:
        self._find, self._captured_slots, self._open_reader = find, captured_slots, open_reader
        self._lock = threading.Lock()
        self._attributes: dict[str, Attribute] = {}
        self._reader: Reader | None = None
        self._matches: dict[str, list[int]] = {}
        self._module = Module("", 0, 0)
        self.process_name = ""

    @property
    def pid(self) -> int:
        """Return the id of the process that is read; 0 before `attach`, and when it has ended."""
        return self._reader.pid if self._reader is not None and self._reader.running() else 0

    def configure(self, process_name: str, attributes: Mapping[str, Attribute]) -> None:
        """Add a client's attributes to those of others; the latest of a name counts.

        Raises:
            GameError: for a process without a name or another than is served already, an attribute that no
                server can find, or too many.
        """
        if not process_name:
            raise GameError("Siphon: expected the name of the process in the configuration, found none; give it.")
        for name, attribute in attributes.items():
            check_fields(attribute, Where("the configuration", f"attributes.{name}"))
        with self._lock:
            if process_name.lower() != self.process_name.lower():
                if self._module.size:
                    raise GameError(f"Siphon: expected {self.process_name}, served here, found {process_name!r}.")
                self._attributes = {}
            if len(self._attributes.keys() | attributes.keys()) > _MOST_ATTRIBUTES:
                raise GameError(f"Siphon: expected at most {_MOST_ATTRIBUTES} attributes, found more; name fewer.")
            self.process_name = process_name
            self._attributes |= attributes

    def attach(self) -> int:
        """Find the process and every pattern in it; return its id.

        Raises:
            LinkError: if it does not run, is another than the configured one, or reading is not permitted.
        """
        with self._lock:
            if not self.process_name:
                raise LinkError("Siphon: expected a configuration first, found none; send SetProcessConfig.")
            pid, reader = self._find(), self._reader
            if reader is None or reader.pid != pid or not reader.running():
                self._module = Module("", 0, 0)
                self._reader = reader = self._open_reader(pid)
            module = reader.module(self.process_name)
            if module != self._module:
                self._matches, self._module = {}, module
            wanted = {each.pattern for each in self._attributes.values() if each.pattern} - self._matches.keys()
            self._matches |= reader.scan(module, {pattern: compile_pattern(pattern) for pattern in wanted})
            return reader.pid

    def read(self, name: str) -> Value:
        """Read an attribute as its type says.

        Raises:
            UnknownNameError: if no client configured it.
            LinkError: if it cannot be reached.
        """
        attribute, reader, address = self._find_attribute(name)
        return attribute.decode(reader.read(address, attribute.size))

    def write(self, name: str, value: Value) -> None:
        """Write an attribute: a "bool" the bits of its mask alone, an array as many bytes as are given.

        Raises:
            UnknownNameError: if no client configured it.
            GameError: for a value of another type, or an array longer than the attribute.
            LinkError: if it cannot be reached.
        """
        attribute, reader, address = self._find_attribute(name)
        if type(value) is not PYTHON_TYPES[attribute.type]:
            found = type(value).__name__
            raise GameError(f"{name}: expected a value of type {attribute.type}, found {found}; send that.")
        if isinstance(value, bytes):
            if len(value) > attribute.length:
                raise GameError(f"{name}: expected at most {attribute.length} bytes, found {len(value)}; send fewer.")
            data = value
        elif isinstance(value, bool):
            mask = attribute.mask
            # Siphon writes 1 for a whole byte; of a part of it, every bit.
            bits = (1 if mask == 0xFF else mask) if value else 0
            data = bytes([reader.read(address, 1)[0] & ~mask & 0xFF | bits])
        else:
            data = struct.pack(FORMATS[attribute.type], value)
        reader.write(address, data)

    def close(self) -> None:
        """Let go of the process; a second call does nothing."""
        if self._reader is not None:
            self._reader.close()

    def _find_attribute(self, name: str) -> tuple[Attribute, Reader, int]:
        """Return an attribute, the reader, and the address that the attribute's chain leads to now."""
        attribute, reader = self._attributes.get(name), self._reader
        if attribute is None:
            raise UnknownNameError("attribute", name, self._attributes)
        if reader is None:
            raise LinkError("Siphon: expected the memory to be initialized, found it not; send InitializeMemory.")
        return attribute, reader, reader.follow(self._start(name, attribute, reader), attribute.offsets)

    def _start(self, name: str, attribute: Attribute, reader: Reader) -> int:
        """Return the address that an attribute's chain starts from, read each time."""
        if attribute.method == "module":
            return self._module.base
        matches = self._matches.get(attribute.pattern)
        if not matches:
            raise LinkError(f"{name}: expected its pattern in the game, found it nowhere; is that another version?")
        if attribute.method != "dll":
            displacement = int(reader.read_value(matches[0] + displacement_at(attribute.pattern), "i32"))
            pointer = reader.read_pointer(matches[0] + _LENGTH + displacement)
        elif self._captured_slots:
            pointer = reader.read_pointer(matches[0] + _SLOT_AT)
        else:
            raise LinkError(
                f"{name}: expected a method that only reads, found 'dll'; this server injects no code into a game: "
                "use Siphon's own on Windows."
            )
        if not pointer:
            raise LinkError(f"{name}: expected a pointer, found none; is the game loading, or nothing locked on?")
        return pointer


_STEP_S = 0.01


class DesktopInput:
    """Move the mouse and report what is down, whoever pressed it; thread-safe.

    Raises:
        GameError: if python-xlib is not installed, or the display cannot be reached.
    """

    def __init__(self, display: str = "") -> None:
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._device = XTestDevice(display)

    def move_mouse(self, right: int, down: int, steps: int) -> None:
        """Move the mouse by pixels in a number of steps, 10 ms apart; `close` ends it."""
        x = y = 0
        for step in range(1, steps + 1):
            if self._ending.wait(_STEP_S if step > 1 else 0.0):
                return
            to_x, to_y = right * step // steps, down * step // steps
            with self._lock:
                self._device.move_mouse(to_x - x, to_y - y)
            x, y = to_x, to_y

    def down(self) -> list[str]:
        """Return the keys and mouse buttons that are down, by the names of Siphon's recordings."""
        with self._lock:
            down = self._device.down()
        return [("MOUSE_" if key in MOUSE_BUTTONS else "") + siphon_link.to_siphon(key) for key in down]

    def close(self) -> None:
        """Disconnect from the display; a second call does nothing."""
        self._ending.set()
        with self._lock:
            self._device.close()


_WATCH_S = 0.2


class ServedKeys:
    """Press keys for clients; `connected` returns those still connected, and keys of others are released.

    A key that two clients hold comes up when the last of them releases it.
    """

    def __init__(self, device: KeyDevice, connected: Callable[[], Collection[str]]) -> None:
        self._device, self._connected = device, connected
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._release_the_gone, name="siphon keys", daemon=True)
        self._watch.start()

    def press(self, client: str, key: str) -> None:
        """Send a key down for a client; raises `GameError` if there is no such key."""
        with self._lock:
            self._device.check(key)
            self._wait(0.0)
            # Counted first: what fails halfway must come up too.
            holders = self._held.setdefault(key, set())
            holders.add(client)
            if len(holders) == 1:
                self._device.press(key)

    def release(self, client: str, key: str) -> None:
        """Send a key up for a client, unless another one holds it."""
        with self._lock:
            if not self._ending.is_set():
                self._device.check(key)
                self._let_go(client, key)

    def tap(self, client: str, keys: Sequence[str], hold_s: float, delay_s: float) -> None:
        """Press keys in turn, `delay_s` apart, hold them, and release them the other way round.

        Raises:
            GameError: if there is no such key, or the server ends meanwhile.
        """
        pressed: list[str] = []
        try:
            for key in keys:
                self._wait(delay_s if pressed else 0.0)
                self.press(client, key)
                pressed.append(key)
            self._wait(hold_s)
        finally:
            for number, key in enumerate(reversed(pressed)):
                self._ending.wait(delay_s if number else 0.0)
                self.release(client, key)

    def close(self) -> None:
        """Release every key and close the device; a second call does nothing."""
        self._ending.set()
        self._watch.join()
        with self._lock:
            self._let_go_but_for(())
            self._device.close()

    def _wait(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise GameError("keys: expected a server that runs, found it ending.")

    def _let_go(self, client: str, key: str) -> None:
        holders = self._held.get(key, set())
        holders.discard(client)
        if not holders:
            self._held.pop(key, None)
            self._device.release(key)

    def _let_go_but_for(self, clients: Collection[str]) -> None:
        for key, holders in list(self._held.items()):
            for client in holders.difference(clients):
                with suppress(GameError):
                    self._let_go(client, key)

    def _release_the_gone(self) -> None:
        while not self._ending.wait(_WATCH_S):
            with self._lock:
                # Asked under the lock: who comes after the answer must not count as gone.
                self._let_go_but_for(self._connected() if self._held else ())


def connected_clients(port: int) -> frozenset[str]:
    """Return (address, port) of every client connected to a port of this process, in the form of `client_name`."""
    found = psutil.Process().net_connections("tcp")
    ends = [one.raddr for one in found if one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port]
    return frozenset(_spell(end.ip, end.port) for end in ends)


def client_name(peer: str) -> str:
    """Return the (address, port) of a peer in gRPC's form, such as "ipv4:127.0.0.1:40122" or "ipv6:%5B::1%5D:40122"."""
    return _spell(*split_address(unquote(peer).partition(":")[2]))


def _spell(host: str, port: int) -> str:
    return f"{plain_host(host.partition('%')[0])} {port}"
