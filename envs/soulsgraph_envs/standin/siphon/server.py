"""The Siphon server: one game of this machine, served over gRPC to any Siphon client."""

from __future__ import annotations

import hmac
import logging
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.keys.opening import open_key_device
from soulsgraph_envs.siphon.calls import TOKEN_KEY, bearer, read_or_create_token
from soulsgraph_envs.siphon.protocol import MESSAGE_LIMITS, grpc, service
from soulsgraph_envs.standin.siphon.desktop_input import DesktopInput
from soulsgraph_envs.standin.siphon.recording import Recordings, Sources
from soulsgraph_envs.standin.siphon.served_game import ServedGame
from soulsgraph_envs.standin.siphon.served_keys import ServedKeys, connected_clients
from soulsgraph_envs.standin.siphon.served_window import ServedWindow
from soulsgraph_envs.standin.siphon.service import Parts, SiphonService
from soulsgraph_envs.standin.siphon.serving import Serving

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
