import pytest

import fleet_streams
from fleet import bench_fleet, describe

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
