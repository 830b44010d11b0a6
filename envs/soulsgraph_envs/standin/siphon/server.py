"""The Siphon server: one game of this machine, served over gRPC, and the settings that lead clients to it."""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.keyboard.guarded_device import open_key_device
from soulsgraph_envs.drivers.realtime.link import GameSettings, LinkError
from soulsgraph_envs.drivers.siphon.calls import (
    MESSAGE_LIMITS,
    TOKEN_KEY,
    bearer,
    grpc,
    is_loopback,
    read_or_create_token,
    service,
    split_address,
)
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.process import StandInProcess
from soulsgraph_envs.standin.siphon.recording import Recordings, ServedWindow, Sources
from soulsgraph_envs.standin.siphon.served_game import ServedGame
from soulsgraph_envs.standin.siphon.served_keys import DesktopInput, ServedKeys, connected_clients
from soulsgraph_envs.standin.siphon.service import Parts, SiphonService


@dataclass(frozen=True)
class Serving:
    """The options of a Siphon server: how it is reached and what its clients may do."""

    address: str = "127.0.0.1:50051"
    """Where it listens; on any address but the loopback it demands a token of every call."""
    token_file: Path | None = None
    """File of the token, made with mode 600 if there is none; with one, every call needs it."""
    certificate: Path | None = None
    """PEM file of a certificate, to encrypt with its key."""
    key: Path | None = None
    """PEM file of the certificate's key."""
    allow_commands: bool = False
    """Let clients run any program on this machine."""
    recordings: Path = Path("recordings")
    """Folder that recordings go below."""
    display: str = ""
    """X display of the game, such as :99; the environment's if not given."""
    window: str = ""
    """Title of the game's window; that of its process if not given."""

    def check(self) -> None:
        """Refuse invalid or unsafe options before a game is started; make the token file if missing.

        Raises:
            GameError: for an address that is invalid, in use, or that others can reach without a token; for a
                certificate without its own key; for a token file that cannot be used.
        """
        host, port = split_address(self.address)
        if (self.certificate is None) != (self.key is None):
            raise GameError("Siphon server: expected `certificate` and `key` together, found one of them; give both.")
        if not is_loopback(host) and self.token_file is None:
            raise GameError(
                f"Siphon server: expected `token_file` for {self.address}, which others can reach, found none; "
                "give one, or listen on 127.0.0.1 and let clients come through a tunnel."
            )
        self.certificate_pair()
        try:
            socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
        # A host that cannot be encoded is a UnicodeError.
        except (OSError, UnicodeError) as error:
            raise self.unusable_address(error) from error
        if self.token_file is not None:
            read_or_create_token(self.token_file)

    def certificate_pair(self) -> tuple[bytes, bytes] | None:
        """Read the key and the certificate, in gRPC's order; None without.

        Raises:
            GameError: if they cannot be read, or do not belong together.
        """
        if self.certificate is None or self.key is None:
            return None
        try:
            # Without a password OpenSSL would ask for that of an encrypted key, which gRPC cannot use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
            return self.key.read_bytes(), self.certificate.read_bytes()
        except OSError as error:
            raise GameError(
                f"Siphon server: expected {self.certificate} and its key {self.key}, found {error}; "
                "give a certificate and its own key, both as PEM."
            ) from error

    def unusable_address(self, error: Exception) -> GameError:
        """Return the error of an address that cannot be listened at."""
        return GameError(
            f"Siphon server: expected {self.address} to be free and of this machine, found: {error}; "
            "give another `address`."
        )


DEFAULT_SERVING = Serving()


def settings_of(serving: Serving, address: str, address_map: str, speed: float) -> GameSettings:
    """Return the settings with which clients reach a server that listens at `address`."""
    return GameSettings(
        driver="siphon",
        map=address_map,
        host=address,
        speed=speed,
        token_file=_absolute(serving.token_file),
        certificate=_absolute(serving.certificate),
    )


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.resolve())


class LastingStandIn:
    """Run a stand-in; `pid` returns its id, and starts another one if it crashed.

    Raises:
        GameError: if it does not start, with its output.
    """

    def __init__(self, options: StandInOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._process = StandInProcess(options)

    def pid(self) -> int:
        """Return the id of the running stand-in."""
        with self._lock:
            if not self._process.running:
                self._process.close()
                try:
                    self._process = StandInProcess(self._options)
                except GameError as error:
                    raise LinkError(str(error)) from error
            return self._process.pid

    def tell(self, command: str) -> None:
        """Send the stand-in a command on standard input, such as "crash" or "freeze 3"."""
        self._process.tell(command)

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._lock:
            self._process.close()

    def __enter__(self) -> LastingStandIn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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


class SiphonServer:
    """Serve the process that `find_pid` names, until `close`.

    Raises:
        GameError: as `Serving.check`; also for an address, a file or a display that cannot be used.
    """

    def __init__(self, serving: Serving, find_pid: Callable[[], int], captured_slots: bool = False) -> None:
        if not sys.platform.startswith("linux"):
            raise GameError("Siphon server: expected Linux, found another system; use Siphon's own server there.")
        serving.check()
        interceptors, credentials = _token_check(serving), _credentials(serving)
        self._game = ServedGame(find_pid, captured_slots)
        # Two, so that a picture, which takes long, never keeps the question for the focus waiting.
        self._window, self._camera = (ServedWindow(find_pid, serving.window, serving.display) for _ in range(2))
        self._desktop = DesktopInput(serving.display)
        device = open_key_device(serving.display)
        self._keys = ServedKeys(device, lambda: connected_clients(self.port))
        sources = Sources(self._camera.capture, self._number, self._desktop.down)
        self._recordings = Recordings(serving.recordings, sources)
        parts = Parts(self._game, self._keys, self._desktop, self._window, self._camera, self._recordings)
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "siphon"), interceptors=interceptors, options=MESSAGE_LIMITS + _KEEPALIVE
        )
        service.add_SiphonServiceServicer_to_server(SiphonService(parts, serving.allow_commands), self._server)
        self.port = self._listen(serving, credentials)
        self.address = f"{serving.address.rpartition(':')[0]}:{self.port}"

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

    def _listen(self, serving: Serving, credentials: Any) -> int:
        try:
            if credentials is None:
                port = self._server.add_insecure_port(serving.address)
            else:
                port = self._server.add_secure_port(serving.address, credentials)
        except RuntimeError as error:
            self.close()
            raise serving.unusable_address(error) from error
        self._server.start()
        return int(port)

    def _number(self, name: str) -> float:
        """Read an attribute for a recording; of an array, its first four bytes as a float."""
        value = self._game.read(name)
        return struct.unpack("<f", value[:4].ljust(4, b"\0"))[0] if isinstance(value, bytes) else float(value)


class TokenCheck(grpc.ServerInterceptor):
    """Refuse every call that does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token).encode()
        self._refuse = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Let a call through, or answer it UNAUTHENTICATED."""
        given = next((value for key, value in details.invocation_metadata if key == TOKEN_KEY), "")
        return continuation(details) if hmac.compare_digest(given.encode(), self._expected) else self._refuse


def _refuse(request: object, context: Any) -> None:
    context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "this server asks for its token: name a copy of its token file as token_file, or come through a tunnel "
        "to a server that listens on 127.0.0.1",
    )


def _token_check(serving: Serving) -> list[TokenCheck]:
    return [] if serving.token_file is None else [TokenCheck(read_or_create_token(serving.token_file))]


def _credentials(serving: Serving) -> Any:
    pair = serving.certificate_pair()
    if pair is None:
        if serving.token_file is not None:
            _LOG.warning("Siphon server: the token can be read on its way to %s; add a certificate.", serving.address)
        return None
    return grpc.ssl_server_credentials([pair])


class Served(NamedTuple):
    """A stand-in, its serving options and server, and the settings of a link to it."""

    game: LastingStandIn
    serving: Serving
    server: SiphonServer
    settings: GameSettings


@contextmanager
def served_stand_in(serving: Serving, options: StandInOptions) -> Iterator[Served]:
    """Run a stand-in behind a server of its own, as tests do."""
    with LastingStandIn(options) as game:
        server = SiphonServer(serving, game.pid, captured_slots=True)
        try:
            settings = GameSettings(driver="siphon", host=server.address, map=options.map)
            yield Served(game, serving, server, settings)
        finally:
            server.close()
