"""A gateway's metrics for Prometheus, on a port of their own: bare on the loopback, or by TLS and with a token."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from soulsgraph_clusters.fleet.actor.spool import DAMAGED, DISK_FULL, FULL, UNFINISHED
from soulsgraph_clusters.fleet.gateway.admission import ALTERED, MALFORMED, OTHER_STAGE, SHARE, STALE
from soulsgraph_clusters.fleet.gateway.journal import JOURNALED
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, GameStatus
from soulsgraph_clusters.fleet.protocol.security import Tokens
from soulsgraph_clusters.fleet.protocol.settings import METRICS_READER, Fleet, FleetError, split_address
from soulsgraph_envs.core.access import bearer, family_of

#: Readers at once; each has a thread. A reader's connection is closed after so long, whatever it does.
MOST_READERS, READER_S = 8, 10.0
#: Counted from 0 on: a series that begins with its first event shows no rate of it.
_VERDICTS = JOURNALED, STALE, OTHER_STAGE, MALFORMED, SHARE, ALTERED
_LOSSES = "doubtful", "waited too long", UNFINISHED, FULL, DISK_FULL, DAMAGED
_PREFIX, _GAME = "soulsgraph_fleet", ("pc", "game")

_Value = Callable[[GameStatus], float]
#: What each game is measured by: name, meaning, and where `GameStatus` has it.
_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("ideal_ticks_per_second", "Control ticks a second that the game's speed allows.", lambda g: g.ideal_ticks_per_s),
    ("lateness_p99_seconds", "Lateness of the latest 300 ticks.", lambda g: g.lateness_p99_ms / 1000.0),
    ("weights_age_ticks", "Control ticks for which newer weights have been out.", lambda g: g.stale_ticks),
    ("silent_seconds", "Time since the game's last message.", lambda g: g.silent_s),
    ("waiting_chunks", "Chunks in the PC's spool.", lambda g: float(g.waiting_chunks)),
    ("connected", "1 for a game that is connected, 0 for one that was.", lambda g: float(g.connected)),
)
_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("ticks", "Control ticks played.", lambda g: float(g.ticks)),
    ("finished_decisions", "Decisions finished.", lambda g: float(g.finished)),
    ("cpu_seconds", "CPU time of the game's process.", lambda g: g.cpu_s),
)
_ByName = Callable[[GameStatus], Mapping[str, float]]
#: Counters with a label more: name, meaning, label, where `GameStatus` has them.
_NAMED_COUNTERS: tuple[tuple[str, str, str, _ByName], ...] = (
    ("reset_seconds", "Time in resets.", "phase", lambda g: g.reset_s),
    (
        "lost_decisions",
        "Decisions that never became a chunk.",
        "reason",
        lambda g: {**dict.fromkeys(_LOSSES, 0), **g.lost},
    ),
    ("lost_episodes", "Episodes broken off.", "reason", lambda g: g.lost_episodes),
)


class FleetCollector(Collector):
    """Turn what `describe` returns into Prometheus' metrics, anew at every reading."""

    def __init__(self, describe: Callable[[], FleetStatus]) -> None:
        self._describe = describe

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the fleet and of every game that was seen."""
        status = self._describe()
        yield InfoMetricFamily(f"{_PREFIX}_stage", "The stage.", {"stage": status.stage, "attempt": status.attempt})
        connected = sum(game.connected for game in status.games)
        yield GaugeMetricFamily(f"{_PREFIX}_games", "Games that are connected.", connected)
        yield CounterMetricFamily(f"{_PREFIX}_chunks", "Chunks in the journal.", status.records)
        yield GaugeMetricFamily(f"{_PREFIX}_weights_version", "The newest weights.", status.weights_version)
        yield _decisions(status)
        yield _absent(status)
        games = [game for game in status.games if game.is_game]
        labels = [tuple(game.name.split("/", 1)) for game in games]
        yield _info(games)
        for kind, table in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, meaning, value in table:
                family = kind(f"{_PREFIX}_{name}", meaning, labels=_GAME)
                for own, game in zip(labels, games, strict=True):
                    family.add_metric(own, value(game))
                yield family
        for name, meaning, label, values in _NAMED_COUNTERS:
            counter = CounterMetricFamily(f"{_PREFIX}_{name}", meaning, labels=(*_GAME, label))
            for own, game in zip(labels, games, strict=True):
                for named, count in values(game).items():
                    counter.add_metric((*own, named), count)
            yield counter


def _info(games: Iterable[GameStatus]) -> Metric:
    """Return by what each game plays, and where."""
    family = InfoMetricFamily(f"{_PREFIX}_game", "Version, address and driver of each game.", labels=_GAME)
    for game in games:
        labels = {"version": game.version, "address": game.address, "driver": game.driver}
        family.add_metric(game.name.split("/", 1), labels)
    return family


def _absent(status: FleetStatus) -> Metric:
    """Return the PCs that play no game at all, by whether they are refused or were never seen."""
    family = GaugeMetricFamily(f"{_PREFIX}_absent", "Refused PCs, and those never seen.", labels=("pc", "state"))
    for one in status.games:
        if not one.is_game:
            family.add_metric((one.name, one.state), 1.0)
    return family


def _decisions(status: FleetStatus) -> Metric:
    """Return what became of the decisions that came, by PC and verdict."""
    pcs = {name.partition("/")[0] for name in (*status.decisions, *(game.name for game in status.games))}
    counts = {**{f"{pc}/{verdict}": 0 for pc in sorted(pcs) for verdict in _VERDICTS}, **status.decisions}
    family = CounterMetricFamily(f"{_PREFIX}_decisions", "Decisions that came.", labels=("pc", "verdict"))
    for key, count in counts.items():
        family.add_metric(key.split("/", 1), count)
    return family


class _Server(ThreadingWSGIServer):
    """A thread for each reading, and no more of them than `MOST_READERS`."""

    def __init__(self, *words: Any) -> None:
        self._free = threading.Semaphore(MOST_READERS)
        super().__init__(*words)

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; where too many read already the connection is closed, and its reader tries again."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, within `READER_S`: one who sends or takes a byte now and then would never let the thread go."""
        late = threading.Timer(READER_S, _break_off, (request,))
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: a reader that is gone is no event."""


def _break_off(connection: socket.socket) -> None:
    # The plain socket's: that of TLS would take its state away from the thread that uses it.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Server6(_Server):
    """The same by IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Answers one reader."""

    def log_message(self, *_: Any) -> None:
        """Write nothing: a reading is no event."""


class Exporter:
    """Serve a fleet's metrics at the settings' `metrics` until closed; with a certificate by TLS, to its token only.

    Raises:
        FleetError: if it cannot listen there.
    """

    def __init__(self, fleet: Fleet, describe: Callable[[], FleetStatus]) -> None:
        settings, registry = fleet.settings, CollectorRegistry()
        registry.register(FleetCollector(describe))
        ProcessCollector(registry=registry)
        application = make_wsgi_app(registry)
        if settings.certificate:
            application = _with_token(application, Tokens(fleet.folder / settings.tokens))
        host, port = split_address(settings.metrics)
        try:
            kind = _Server6 if family_of(host) == socket.AF_INET6 else _Server
            self._server = make_server(host, port, application, kind, _Handler)
        except OSError as error:
            raise FleetError(
                f"fleet: expected to serve metrics at {settings.metrics}, found: {error.strerror or error}; end the "
                "program that does, or correct `metrics`."
            ) from error
        if settings.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(fleet.folder / settings.certificate, fleet.folder / settings.key)
            # The handshake is for the reader's own thread: here it would keep all others waiting.
            listening = self._server.socket
            self._server.socket = context.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="fleet metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _with_token(application: _Application, tokens: Tokens) -> _Application:
    """Answer those alone who send the token that was issued to `METRICS_READER`."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        sent = str(environ.get("HTTP_AUTHORIZATION", ""))
        try:
            known = sent.startswith(bearer("")) and tokens.name_of(sent.removeprefix(bearer(""))) == METRICS_READER
        except FleetError:
            known = False
        if known:
            return application(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [f"expected the token that the head issued to {METRICS_READER}, found none or another\n".encode()]

    return checked
