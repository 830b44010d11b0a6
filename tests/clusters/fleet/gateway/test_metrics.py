"""What Prometheus reads of a fleet: every figure, with a certificate by TLS."""

import socket
import ssl
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.fleet_here import CAMERA
from soulsgraph_clusters.fleet.gateway.metrics import Exporter
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetStage, GatewayRunner
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, GameStatus
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.certificates import CERTIFICATE, KEY, make_certificate
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings, InUseError
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.skills import SkillOptions

LABELS = "pc", "game", "phase", "reason", "verdict", "state", "version", "address", "driver"
PLAYING = GameStatus(
    "attic/1",
    "memory",
    1,
    "playing",
    "",
    ideal_ticks_per_s=30.0,
    waiting_chunks=5,
    lost={"spool full": 11},
    ticks=70,
    lateness_p99_ms=4.0,
    reset_s={"aim": 2.5},
    lost_episodes={"the game is gone": 2},
    version="0.2.0",
    address="10.0.0.7",
)
GONE = GameStatus("attic/2", "memory", 1, "lost", "", silent_s=60.0, ticks=80, connected=False)
ABSENT = GameStatus("cellar", "", 0, "not seen", "", connected=False)
STATUS = FleetStatus("camera", "a1", 0.0, 1, 0, {"attic/stale": 9}, (PLAYING, GONE, ABSENT))


def _samples(text):
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _read(exporter, scheme="http", context=None):
    with urlopen(f"{scheme}://127.0.0.1:{exporter.port}/metrics", timeout=60, context=context) as answer:
        return answer.read().decode()


@pytest.fixture
def bare(tmp_path):
    exporter = Exporter(Fleet(FleetSettings(metrics="127.0.0.1:0"), tmp_path), lambda: STATUS)
    yield exporter
    exporter.close()


def test_every_figure_of_a_game_is_there_under_its_pc_and_name(bare):
    found, game = _samples(_read(bare)), ("attic", "1")
    expected = {
        ("games",): 1,
        ("game_info", *game, "0.2.0", "10.0.0.7", "memory"): 1,
        ("ticks_total", *game): 70,
        ("ideal_ticks_per_s", *game): 30,
        ("lateness_p99_ms", *game): 4.0,
        ("reset_s_total", *game, "aim"): 2.5,
        ("lost_episodes_total", *game, "the game is gone"): 2,
        ("lost_total", *game, "spool full"): 11,
        ("decisions_total", "attic", "stale"): 9,
        ("waiting_chunks", *game): 5,
        ("connected", "attic", "2"): 0,
        ("ticks_total", "attic", "2"): 80,
        ("silent_s", "attic", "2"): 60,
        ("absent", "cellar", "not seen"): 1,
    }
    assert {key: found[f"soulsgraph_fleet_{key[0]}", *key[1:]] for key in expected} == expected
    assert found["process_cpu_seconds_total",] > 0


def test_with_a_certificate_the_figures_are_read_by_tls_beside_one_who_says_nothing(tmp_path):
    make_certificate(tmp_path, ("127.0.0.1",))
    exporter = Exporter(
        Fleet(FleetSettings(metrics="127.0.0.1:0", certificate=CERTIFICATE, key=KEY), tmp_path), lambda: STATUS
    )
    context = ssl.create_default_context(cafile=tmp_path / CERTIFICATE)
    with socket.create_connection(("127.0.0.1", exporter.port)):
        assert "soulsgraph_fleet_games" in _read(exporter, "https", context)
        with pytest.raises(RemoteDisconnected):
            _read(exporter)
        exporter.close()
    with pytest.raises(URLError):
        _read(exporter, "https", context)


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = FleetSettings(metrics=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(InUseError, match="metrics"):
            Exporter(Fleet(settings, Path()), lambda: STATUS)


@pytest.mark.slow
def test_a_stages_gateway_serves_its_figures_until_the_stage_is_over(tmp_path):
    port = free_port()
    settings = FleetSettings(listen="127.0.0.1:0", metrics=f"127.0.0.1:{port}")
    stage = FleetStage(Fleet(settings, tmp_path), tmp_path / "journal", "camera", CAMERA.scenario, SkillOptions())
    config = FleetDQN.get_default_config().debugging(log_level="ERROR")
    config = config.stage(CAMERA.skills, CAMERA.learns["camera"], steps_per_round=64, seed=1)
    config = config.env_runners(env_runner_cls=GatewayRunner).environment(env_config={FLEET: stage})
    algorithm = config.build_algo()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = _samples(answer.read().decode())
    algorithm.stop()
    assert found["soulsgraph_fleet_games",] == 0
    assert found["soulsgraph_fleet_weights_version",] == 1
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
