import pytest

import fleet_games
import fleet_streams
from fakes.waiting import until
from fleet import bench_fleet, describe
from fleet_games import bench_paced

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
    assert describe(gateway) != describe(driver)
    assert list(tmp_path.iterdir()) == []


def test_paced_games_are_measured_beside_a_bare_loop(tmp_path):
    def kept():
        result = bench_paced(games=2, speed=10.0, seconds=3.0, rounds=1, folder=tmp_path)
        (measured,) = result["measured"]
        assert 0 < measured["slowest_ticks_per_s"] <= measured["ticks_per_s"] < 130
        assert measured["bare_ticks_per_s"] <= 101
        assert measured["cpu_ms_a_tick"] > 0
        assert list(tmp_path.iterdir()) == []
        # A busy machine may take the processor away for a part of the time.
        return measured["bare_ticks_per_s"] > 50

    until(kept, "a bare loop that kept its time")


def test_games_are_measured_while_one_of_them_resets_or_is_frozen(tmp_path, monkeypatch):
    # On a busy machine the learner may stand still for seconds.
    monkeypatch.setattr(fleet_games, "_READ_AFTER_S", 10.0)
    resetting, frozen = fleet_games.bench_disturbed(games=2, rounds=1, folder=tmp_path)
    for result in (resetting, frozen):
        (measured,) = result["measured"]
        assert 10 < measured["ticks_per_s"] < 40
        assert measured["learned_per_s_and_game"] > 0
    assert 4.0 < frozen["measured"][0]["reported_after_s"] < 60.0
    assert list(tmp_path.iterdir()) == []
