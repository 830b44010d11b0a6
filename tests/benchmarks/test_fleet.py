import pytest

import fleet_games
import fleet_streams
from fakes.fleet_here import GatewayHere
from fakes.waiting import until
from fleet import MOST_STREAMS, bench_fleet, describe
from fleet_games import bench_paced, keep_time
from fleet_streams import PCS, bench_task, open_clients
from soulsgraph_clusters.fleet.gateway.admission import MOST_GAMES
from soulsgraph_clusters.fleet.protocol.security import token_metadata
from soulsgraph_clusters.fleet.protocol.settings import PC, FleetSettings
from soulsgraph_envs.core.errors import SoulsGraphError

pytestmark = pytest.mark.slow


def test_the_gateway_is_measured_beside_a_bare_server_with_the_same_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_streams, "_CLIENT_PROCESSES", 1)
    monkeypatch.setattr(fleet_streams, "_STEADY_AFTER_S", 1.0)
    bare, gateway, driver = bench_fleet(1, tmp_path, ("streams",), seconds=3.0, streams=20)
    for result in (bare, gateway, driver):
        (counts,) = result["measured"]
        # Five seconds of twenty streams, and on a busy machine fewer.
        assert 20 <= counts["chunks"] <= 120
        assert counts["acknowledged"] >= counts["chunks"]
        assert counts["weights"] > 0
        assert counts["refused"] == counts["lost"] == 0
        assert counts["cpu_s"] > 0
    assert gateway["measured"][0]["acknowledged"] == gateway["measured"][0]["chunks"]
    assert 0 < gateway["measured"][0]["queue_age_p50_ms"] <= gateway["measured"][0]["queue_age_p99_ms"]
    assert gateway["to_bare"]["median"] == pytest.approx(gateway["cores"]["median"] / bare["cores"]["median"])
    (received,) = driver["measured"]
    assert 0 < received["received_decisions"] <= 10 * received["acknowledged"]
    assert received["driver_cpu_s"] + received["gateway_cpu_s"] == pytest.approx(received["cpu_s"])
    assert "ms a chunk beyond it; queue age" in describe(gateway)
    assert "ms a chunk beyond it; 1 rounds" in describe(driver)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_refused_ends_the_measurement_with_its_reason(tmp_path):
    here = GatewayHere(tmp_path, bench_task(), FleetSettings(pcs={"cellar": PC()}))
    with (
        here,
        pytest.raises(SoulsGraphError, match=r"expected 3 streams, found 3 .*a PC of the fleet's file, found attic"),
    ):
        open_clients(here.address, [token_metadata(here.head().token)], range(3), 3)


def test_the_streams_are_of_so_many_pcs_that_none_has_more_games_than_a_stage_takes():
    assert len(PCS) * MOST_GAMES >= MOST_STREAMS


def test_paced_games_are_measured_beside_a_bare_loop(tmp_path):
    def kept():
        result = bench_paced(games=2, speed=10.0, seconds=3.0, rounds=1, folder=tmp_path)
        (measured,) = result["measured"]
        assert 0 < measured["slowest_ticks_per_s"] <= measured["ticks_per_s"] < 130
        assert measured["bare_ticks_per_s"] <= 101
        assert measured["cpu_ms_a_tick"] > 0
        assert "2 paced games at speed 10: " in describe(result)
        assert list(tmp_path.iterdir()) == []
        # A busy machine may take the processor away for a part of the time.
        return measured["bare_ticks_per_s"] > 50

    until(kept, "a bare loop that kept its time")


def test_the_bare_loop_keeps_its_time():
    def kept():
        rate, late_ms = keep_time(speed=10.0, seconds=1.0)
        assert rate <= 101
        assert late_ms > 0
        # A busy machine may take the processor away for a part of the second.
        return rate > 50

    until(kept, "a second in which it kept its time")


def test_games_are_measured_while_one_of_them_resets_or_is_frozen(tmp_path, monkeypatch):
    # On a busy machine the learner may stand still for seconds.
    monkeypatch.setattr(fleet_games, "_READ_AFTER_S", 10.0)
    resetting, frozen = fleet_games.bench_disturbed(games=2, rounds=1, folder=tmp_path)
    for result in (resetting, frozen):
        (measured,) = result["measured"]
        assert 10 < measured["ticks_per_s"] < 40
        assert measured["learned_per_s_and_game"] > 0
        assert "the others' ticks" in describe(result)
    assert 4.0 < frozen["measured"][0]["reported_after_s"] < 60.0
    assert "reported after" in describe(frozen)
    assert list(tmp_path.iterdir()) == []
