"""The Siphon server: one game of this machine, served over gRPC by Siphon's 17 calls."""

# ruff: noqa: N802 (the names of the calls are the protocol)
from __future__ import annotations

import hmac
import logging
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import wraps
from typing import Any, NamedTuple

from soulsgraph_envs.core.access import TOKEN_KEY, bearer, join_address, split_address
from soulsgraph_envs.core.errors import GameError, SoulsGraphError
from soulsgraph_envs.games.keyboard.guarded_device import open_key_device
from soulsgraph_envs.games.realtime.link import GameSettings
from soulsgraph_envs.games.siphon import calls
from soulsgraph_envs.games.siphon.attributes import Attribute
from soulsgraph_envs.games.siphon.link import from_siphon
from soulsgraph_envs.games.standin.options import StandInOptions
from soulsgraph_envs.games.standin.process import StandInProcess
from soulsgraph_envs.games.standin.siphon import served_game
from soulsgraph_envs.games.standin.siphon.recording import Recordings, ServedWindow, Sources
from soulsgraph_envs.games.standin.siphon.serving import ServingOptions

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
    answer = calls.ANSWERS[method.__name__]

    @wraps(method)
    def call(self: Any, request: Any, context: Any) -> Any:
        try:
            return answer(**({"success": True, "message": "done"} | method(self, request, context)))
        # Python's own word for what a client must not send, such as a path with a zero in it.
        except (SoulsGraphError, OSError, ValueError) as error:
            return answer(success=False, message=str(error))

    return call


class SiphonServer(calls.service.SiphonServiceServicer):
    """Serve the process that `find_pid` names, until `close`; failures are reported as by Siphon's own server.

    Raises:
        GameError: as `ServingOptions.check`; also for an address, a file or a display that cannot be used.
    """

    def __init__(self, serving: ServingOptions, find_pid: Callable[[], int], captured_slots: bool = False) -> None:
        if not sys.platform.startswith("linux"):
            raise GameError("Siphon server: expected Linux, found another system; use Siphon's own server there.")
        serving.check()
        self._allow_commands, self._window_name = serving.allow_commands, ""
        self._game = served_game.ServedGame(find_pid, captured_slots)
        # Two, so that a picture, which takes long, never keeps the question for the focus waiting.
        self._window, self._camera = (ServedWindow(find_pid, serving.window, serving.display) for _ in range(2))
        self._desktop = served_game.DesktopInput(serving.display)
        self._keys = served_game.ServedKeys(
            open_key_device(serving.display), lambda: served_game.connected_clients(self.port)
        )
        sources = Sources(self._camera.capture, self._number, self._desktop.down)
        self._recordings = Recordings(serving.recordings, sources)
        interceptors = [TokenCheck(calls.read_or_create_token(serving.token_file))] if serving.token_file else []
        self._server = calls.grpc.server(
            ThreadPoolExecutor(_THREADS, "siphon"), interceptors=interceptors, options=calls.MESSAGE_LIMITS + _KEEPALIVE
        )
        calls.service.add_SiphonServiceServicer_to_server(self, self._server)
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
                port = self._server.add_secure_port(serving.address, calls.grpc.ssl_server_credentials([pair]))
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
            "message": calls.SERVER_NAME,
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
        kind = {int: "int", float: "float", bool: "bool", bytes: "array"}[type(value)]
        return {f"{kind}_value": value}

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
        keys = [from_siphon(key) for key in request.keys]
        self._keys.tap(served_game.client_name(context.peer()), keys, hold_s, delay_s)
        return {}

    @_answers
    def InputKeyToggle(self, request: Any, context: Any) -> dict[str, Any]:
        """Press or release one key; a client's keys are released when it disconnects."""
        change = self._keys.press if request.toggle else self._keys.release
        change(served_game.client_name(context.peer()), from_siphon(request.key))
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
                yield calls.messages.FrameData(**values)
        except GameError as error:
            context.abort(calls.grpc.StatusCode.FAILED_PRECONDITION, str(error))

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
                yield calls.messages.RecordingChunk(**piece)
        except (SoulsGraphError, OSError) as error:
            context.abort(calls.grpc.StatusCode.FAILED_PRECONDITION, str(error))


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


class TokenCheck(calls.grpc.ServerInterceptor):
    """Refuse every call that does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token).encode()
        self._refuse = calls.grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Let a call through, or answer it UNAUTHENTICATED."""
        given = next((value for key, value in details.invocation_metadata if key == TOKEN_KEY), "")
        return continuation(details) if hmac.compare_digest(given.encode(), self._expected) else self._refuse


def _refuse(request: object, context: Any) -> None:
    context.abort(
        calls.grpc.StatusCode.UNAUTHENTICATED,
        "this server asks for its token: name a copy of its token file as token_file, or come through a tunnel "
        "to a server that listens on 127.0.0.1",
    )


class ServedStandIn(NamedTuple):
    """A stand-in, its serving options and server, and the settings of a link to it."""

    game: StandInProcess
    serving: ServingOptions
    server: SiphonServer
    settings: GameSettings


@contextmanager
def served_stand_in(serving: ServingOptions, options: StandInOptions) -> Iterator[ServedStandIn]:
    """Run a stand-in behind a server of its own, as tests do."""
    with StandInProcess(options) as game, closing(SiphonServer(serving, game.living_pid, True)) as server:
        yield ServedStandIn(game, serving, server, GameSettings(driver="siphon", host=server.address, map=options.map))
