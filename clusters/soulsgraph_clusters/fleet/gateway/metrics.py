"""A gateway's metrics for Prometheus, on a port of their own: what its status says, anew at every reading."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from soulsgraph_clusters.fleet.gateway.status import FleetStatus, GameStatus
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, InUseError, split_address

_PREFIX, _GAME = "soulsgraph_fleet", ("pc", "game")
#: What each game is measured by, as `GameStatus` names it; those by name have a label more.
_GAUGES = "ideal_ticks_per_s", "lateness_p99_ms", "stale_ticks", "silent_s", "waiting_chunks", "connected"
_COUNTERS = "ticks", "finished", "cpu_s"
_NAMED_COUNTERS: Mapping[str, str] = {"reset_s": "phase", "lost": "reason", "lost_episodes": "reason"}


class FleetCollector(Collector):
    """Turn what `describe` returns into Prometheus' metrics, anew at every reading."""

    def __init__(self, describe: Callable[[], FleetStatus]) -> None:
        self._describe = describe

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the fleet and of every game that was seen."""
        status = self._describe()
        games = {tuple(game.name.split("/", 1)): game for game in status.games if game.is_game}
        yield InfoMetricFamily(f"{_PREFIX}_stage", "The stage.", {"stage": status.stage, "attempt": status.attempt})
        yield GaugeMetricFamily(f"{_PREFIX}_games", "Games connected.", sum(game.connected for game in games.values()))
        yield CounterMetricFamily(f"{_PREFIX}_chunks", "Chunks in the journal.", status.records)
        yield GaugeMetricFamily(f"{_PREFIX}_weights_version", "The newest weights.", status.weights_version)
        decisions = CounterMetricFamily(f"{_PREFIX}_decisions", "Decisions that came.", labels=("pc", "verdict"))
        for key, count in status.decisions.items():
            decisions.add_metric(key.split("/", 1), count)
        absent = GaugeMetricFamily(f"{_PREFIX}_absent", "Refused PCs, and those never seen.", labels=("pc", "state"))
        for one in status.games:
            if not one.is_game:
                absent.add_metric((one.name, one.state), 1.0)
        info = InfoMetricFamily(f"{_PREFIX}_game", "Version, address and driver of each game.", labels=_GAME)
        for labels, game in games.items():
            info.add_metric(labels, {"version": game.version, "address": game.address, "driver": game.driver})
        yield from (decisions, absent, info)
        for kind, names in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name in names:
                family = kind(f"{_PREFIX}_{name}", f"{name} of each game.", labels=_GAME)
                for labels, game in games.items():
                    family.add_metric(labels, float(getattr(game, name)))
                yield family
        for name, label in _NAMED_COUNTERS.items():
            yield self._named(name, label, games)

    def _named(self, name: str, label: str, games: Mapping[tuple[str, ...], GameStatus]) -> Metric:
        family = CounterMetricFamily(f"{_PREFIX}_{name}", f"{name} of each game.", labels=(*_GAME, label))
        for labels, game in games.items():
            for named, count in getattr(game, name).items():
                family.add_metric((*labels, named), count)
        return family


class Exporter:
    """Serve a fleet's metrics at the settings' `metrics` until closed, with a certificate by TLS.

    Raises:
        FleetError: if it cannot listen there; an InUseError if another program does.
    """

    def __init__(self, fleet: Fleet, describe: Callable[[], FleetStatus]) -> None:
        settings, registry = fleet.settings, CollectorRegistry()
        registry.register(FleetCollector(describe))
        ProcessCollector(registry=registry)
        host, port = split_address(settings.metrics)
        certificate, key = (str(fleet.folder / file) if file else None for file in (settings.certificate, settings.key))
        try:
            self._server, self._thread = start_http_server(port, host, registry, certificate, key)
        except OSError as error:
            raise (InUseError if error.errno == errno.EADDRINUSE else FleetError)(
                f"fleet: expected to serve metrics at {settings.metrics}, found: {error.strerror or error}; end the "
                "program that does, or correct `metrics`."
            ) from error
        if isinstance(self._server.socket, ssl.SSLSocket):
            # The handshake is for the reader's own thread: who connects and says nothing would keep all others waiting.
            self._server.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
