import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.fleet_here import GatewayHere
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway import metrics
from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.gateway.metrics import Exporter
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetStage, GatewayRunner
from soulsgraph_clusters.fleet.gateway.status import FleetStatus
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Health, Hello
from soulsgraph_clusters.fleet.protocol.messages import check_hello
from soulsgraph_clusters.fleet.protocol.security import Tokens, make_certificates
from soulsgraph_clusters.fleet.protocol.settings import PC, Fleet, FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

NUMBERS = DQNHyperparameters(budget=10**9, buffer_size=1000)
TASK = StageTask("iudex-phase1", {"camera": "camera"}, {"camera": NUMBERS}, 10.0)
LABELS = "pc", "game", "phase", "reason", "verdict", "state", "version", "address", "driver"
EMPTY = FleetStatus("camera", "a1", 0.0, 1, 0)


def _samples(text):
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _read(exporter, scheme="http", token="", context=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{scheme}://127.0.0.1:{exporter.port}/metrics"
    with urlopen(Request(url, headers=headers), timeout=60, context=context) as answer:
        return answer.read().decode()


@pytest.fixture
def secured(tmp_path):
    """An exporter with a certificate, the tokens of its fleet, and a context that trusts its CA."""
    made = make_certificates(tmp_path, ("127.0.0.1",))
    settings = FleetSettings(metrics="127.0.0.1:0", certificate=made.certificate.name, key=made.key.name)
    exporter = Exporter(Fleet(settings, tmp_path), lambda: EMPTY)
    yield exporter, Tokens(tmp_path / settings.tokens), ssl.create_default_context(cafile=made.ca)
    exporter.close()


def test_every_figure_of_a_game_is_there_under_its_pc_and_name(tmp_path):
    with GatewayHere(tmp_path, TASK) as here:
        hello = Hello(pc="attic", game="1", boot="00", lanes=1, version="0.2.0", driver="memory")
        connection = Connection(hello, time.monotonic(), address="10.0.0.7")
        figures = {"speed": 3.0, "lateness_p99_ms": 4.0, "reset_s/aim": 2.5, "lost_episodes/the game is gone": 2.0}
        connection.health = Health(ticks=70, waiting_chunks=5, lost_decisions={"spool full": 11}, metrics=figures)
        here.gateway.connections.begin(connection)
        here.journal.decisions["attic/stale"] = 9
        exporter = Exporter(Fleet(FleetSettings(metrics="127.0.0.1:0"), tmp_path), lambda: here.status.describe(4))
        found = _samples(_read(exporter))
        exporter.close()
    game = ("attic", "1")
    assert found["soulsgraph_fleet_games",] == 1
    assert found["soulsgraph_fleet_game_info", *game, "0.2.0", "10.0.0.7", "memory"] == 1
    assert found["soulsgraph_fleet_ticks_total", *game] == 70
    assert found["soulsgraph_fleet_ideal_ticks_per_second", *game] == 30
    assert found["soulsgraph_fleet_lateness_p99_seconds", *game] == pytest.approx(0.004)
    assert found["soulsgraph_fleet_reset_seconds_total", *game, "aim"] == 2.5
    assert found["soulsgraph_fleet_lost_episodes_total", *game, "the game is gone"] == 2
    assert found["soulsgraph_fleet_lost_decisions_total", *game, "spool full"] == 11
    assert found["soulsgraph_fleet_lost_decisions_total", *game, "doubtful"] == 0
    assert found["soulsgraph_fleet_decisions_total", "attic", "stale"] == 9
    assert found["soulsgraph_fleet_decisions_total", "attic", "journaled"] == 0
    assert found["soulsgraph_fleet_waiting_chunks", *game] == 5
    assert found["process_cpu_seconds_total",] > 0


def test_a_game_that_is_gone_and_pcs_that_play_nothing_stay_in_the_figures(tmp_path):
    with GatewayHere(tmp_path, TASK, FleetSettings(pcs={"attic": PC(), "cellar": PC()})) as here:
        connection = Connection(
            Hello(pc="attic", game="1", boot="00", driver="memory", lanes=1), time.monotonic() - 60.0
        )
        connection.health = Health(ticks=70)
        here.gateway.connections.begin(connection)
        connection.close()
        here.gateway.connections.refusals["10.0.0.7"] = "no token", time.monotonic()
        exporter = Exporter(Fleet(FleetSettings(metrics="127.0.0.1:0"), tmp_path), lambda: here.status.describe(4))
        found = _samples(_read(exporter))
        exporter.close()
    assert found["soulsgraph_fleet_games",] == 0
    assert found["soulsgraph_fleet_connected", "attic", "1"] == 0
    assert found["soulsgraph_fleet_ticks_total", "attic", "1"] == 70
    assert found["soulsgraph_fleet_silent_seconds", "attic", "1"] >= 60
    assert found["soulsgraph_fleet_absent", "cellar", "not seen"] == 1
    assert found["soulsgraph_fleet_absent", "10.0.0.7", "refused"] == 1


@pytest.mark.parametrize("whose", ["", "wrong", "attic"])
def test_with_a_certificate_none_but_its_own_token_reads_the_figures(secured, whose):
    exporter, tokens, context = secured
    token = tokens.issue("attic") if whose == "attic" else whose
    with pytest.raises(HTTPError, match="401") as refusal:
        _read(exporter, "https", token, context)
    assert "soulsgraph_fleet" not in refusal.value.read().decode()
    refusal.value.close()


def test_the_token_of_the_metrics_reads_the_figures_until_it_is_revoked(secured):
    exporter, tokens, context = secured
    token = tokens.issue("metrics")
    assert _samples(_read(exporter, "https", token, context))["soulsgraph_fleet_games",] == 0
    tokens.revoke("metrics")
    with pytest.raises(HTTPError, match="401") as refusal:
        _read(exporter, "https", token, context)
    refusal.value.close()


def test_readers_that_say_nothing_keep_no_other_waiting(secured):
    exporter, tokens, context = secured
    silent = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(5)]
    assert "soulsgraph_fleet_games" in _read(exporter, "https", tokens.issue("metrics"), context)
    for one in silent:
        one.close()


def _threads():
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.fixture
def bare(tmp_path):
    exporter = Exporter(Fleet(FleetSettings(metrics="127.0.0.1:0"), tmp_path), lambda: EMPTY)
    yield exporter
    exporter.close()


def test_readers_beyond_the_most_are_refused_until_one_ends(bare, monkeypatch):
    monkeypatch.setattr(metrics, "READER_S", 600.0)
    until(lambda: not _threads(), "the end of others' threads")
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", bare.port))) for _ in range(metrics.MOST_READERS)
        ]
        until(lambda: _threads() == metrics.MOST_READERS, "their threads")
        for _ in range(3):
            with pytest.raises(OSError, match=r"reset|closed|disconnected"):
                _read(bare)
        assert _threads() == metrics.MOST_READERS
        silent[0].close()
        until(lambda: _threads() < metrics.MOST_READERS, "the end of one")
        assert "soulsgraph_fleet_games" in _read(bare)
    until(lambda: not _threads(), "the end of their threads")


#: What a reader begins with, of which the rest comes slowly: a request, and TLS of 512 bytes.
_REQUEST, _CLIENT_HELLO = b"GET /metrics", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.mark.parametrize(("fixture", "begin"), [("bare", _REQUEST), ("secured", _CLIENT_HELLO)])
def test_a_reader_that_sends_a_byte_now_and_then_keeps_no_thread(request, monkeypatch, fixture, begin):
    found = request.getfixturevalue(fixture)
    exporter = found if fixture == "bare" else found[0]
    monkeypatch.setattr(metrics, "READER_S", 2.0)
    until(lambda: not _threads(), "the end of others' threads")
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", exporter.port)) as slow:
        slow.sendall(begin)
        until(_threads, "its thread")

        def ended():
            with suppress(OSError):
                slow.send(b"\0")
            return not _threads()

        until(ended, "the end of its thread")
    assert time.monotonic() - began_s >= 2.0


def test_the_token_of_the_metrics_plays_nothing():
    with pytest.raises(FleetError, match="reads the metrics alone"):
        check_hello(Hello(protocol=1, game="1", lanes=1), "metrics", FleetSettings())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": "0.0.0.0:9443"}, "expected a certificate and its key to listen on 0.0.0.0"),
        ({"metrics": "9443"}, "expected `metrics` as HOST:PORT, found '9443'"),
        ({"metrics": "127.0.0.1:http"}, "expected `metrics` as HOST:PORT"),
        ({"pcs": {"metrics": {}}}, "expected other names of PCs than metrics"),
    ],
)
def test_settings_that_would_show_the_figures_to_others_are_refused(values, message):
    with pytest.raises(FleetError, match=message):
        FleetSettings(**values)


def test_a_port_in_use_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = FleetSettings(metrics=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(FleetError, match=r"expected to serve metrics at .* found: Address already in use"):
            Exporter(Fleet(settings, None), lambda: EMPTY)


@pytest.mark.slow
def test_a_stages_gateway_serves_its_figures_until_the_stage_is_over(tmp_path):
    port = free_port()
    settings = FleetSettings(listen="127.0.0.1:0", metrics=f"127.0.0.1:{port}")
    stage = FleetStage(Fleet(settings, tmp_path), tmp_path / "journal", "camera", TASK.scenario, SkillOptions())
    config = FleetDQN.get_default_config().debugging(log_level="ERROR")
    config = config.stage(TASK.skills, NUMBERS, decisions_per_round=64, seed=1)
    config = config.env_runners(env_runner_cls=GatewayRunner).environment(env_config={FLEET: stage})
    algorithm = config.build_algo()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = _samples(answer.read().decode())
    algorithm.stop()
    assert found["soulsgraph_fleet_games",] == 0
    assert found["soulsgraph_fleet_weights_version",] == 1
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
