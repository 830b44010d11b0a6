"""Every query of the dashboard returns series in Debian's Prometheus; Grafana itself is not run."""

import json
import math
import shutil
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import soulsgraph_clusters
from fakes.fleet_here import GatewayHere
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.metrics import Exporter
from soulsgraph_clusters.fleet.gateway.status import FleetStatus
from soulsgraph_clusters.fleet.protocol.security import Tokens, make_certificates, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

DASHBOARD = Path(soulsgraph_clusters.__file__).parent / "grafana" / "soulsgraph-fleet.json"
PANELS = json.loads(DASHBOARD.read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
NUMBERS = DQNHyperparameters(budget=10**9, buffer_size=1000)
TASK = StageTask("iudex-phase1", {"camera": "camera"}, {"camera": NUMBERS}, 10.0)
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: fleet
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
#: As the page of the fleet's figures shows it.
ENCRYPTED = """
    scheme: https
    authorization: {{credentials_file: {folder}/metrics.token}}
    tls_config: {{ca_file: {folder}/ca.pem}}
"""


class Prometheus:
    """Debian's Prometheus, which reads one exporter every second."""

    def __init__(self, folder, exporter, more=""):
        self.address = f"127.0.0.1:{free_port()}"
        (folder / "prometheus.yml").write_text(CONFIG.format(port=exporter.port) + more)
        storage = f"--storage.tsdb.path={folder / 'series'}"
        words = [f"--config.file={folder / 'prometheus.yml'}", storage, f"--web.listen-address={self.address}"]
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)

    def ask(self, query):
        """Return the values of a query's series, none while it does not answer yet."""
        try:
            with urlopen(f"http://{self.address}/api/v1/query?{urlencode({'query': query})}", timeout=60) as answer:
                found = json.loads(answer.read())["data"]["result"]
        except URLError:
            return []
        return [float(series["value"][1]) for series in found]

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def _shows(prometheus, query):
    values = prometheus.ask(query)
    return bool(values) and all(map(math.isfinite, values))


needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="Prometheus is not installed here (Debian: prometheus)"
)


@pytest.mark.slow
@needs_prometheus
def test_prometheus_reads_by_tls_with_its_token(tmp_path):
    made = make_certificates(tmp_path, ("127.0.0.1",))
    settings = FleetSettings(metrics="127.0.0.1:0", certificate=made.certificate.name, key=made.key.name)
    write_token_file(tmp_path / "metrics.token", Tokens(tmp_path / settings.tokens).issue("metrics"))
    exporter = Exporter(Fleet(settings, tmp_path), lambda: FleetStatus("camera", "a1", 0.0, 1, 0))
    prometheus = Prometheus(tmp_path, exporter, ENCRYPTED.format(folder=tmp_path))
    try:
        until(lambda: prometheus.ask("up") == [1.0], "a reading by TLS")
        assert prometheus.ask("soulsgraph_fleet_games") == [0.0]
    finally:
        prometheus.close()
        exporter.close()


@pytest.mark.slow
@needs_prometheus
def test_every_query_of_the_dashboard_returns_series(tmp_path):
    with GatewayHere(tmp_path, TASK) as here:
        here.play(GameSettings(driver="simulator", speed=5.0))
        exporter = Exporter(Fleet(FleetSettings(metrics="127.0.0.1:0"), tmp_path), lambda: here.status.describe(1))
        prometheus = Prometheus(tmp_path, exporter)
        try:
            assert len(QUERIES) > 15
            for query in QUERIES:
                until(lambda query=query: _shows(prometheus, query), f"series of {query}")
            (ideal,) = prometheus.ask("soulsgraph_fleet_ideal_ticks_per_second")
            assert ideal == 50.0
            assert prometheus.ask("soulsgraph_fleet_no_such_figure") == []
        finally:
            prometheus.close()
            exporter.close()


def test_no_two_panels_share_a_place_or_a_number():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in PANELS)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
