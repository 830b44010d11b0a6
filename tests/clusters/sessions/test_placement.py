import logging

import pytest
import ray

from soulsgraph_clusters.sessions import session as placement
from soulsgraph_clusters.sessions.session import ClusterError, Session, connect, place_env_runners, place_relays

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def game_pcs():
    """Two places for runners, and a processor that is no place."""
    with connect("local", num_cpus=3, resources={"game_pc": 2}) as session:
        yield session


def test_no_runner_needs_no_session():
    assert place_env_runners(0, Session(local=True)) == {"num_env_runners": 0}


def test_runners_are_pinned_to_game_pcs_where_there_are_any(game_pcs):
    assert place_env_runners(2, game_pcs) == {
        "num_env_runners": 2,
        "num_cpus_per_env_runner": 1,
        "custom_resources_per_env_runner": {"game_pc": 1},
    }


def test_a_stage_goes_on_with_the_places_there_are(game_pcs, caplog):
    with caplog.at_level(logging.WARNING, logger="soulsgraph"):
        assert place_env_runners(5, game_pcs)["num_env_runners"] == 2
    assert "2 of 5 have a place" in caplog.text


def test_a_place_that_is_taken_is_none(game_pcs, monkeypatch):
    # What is there has as long as a busy machine needs.
    monkeypatch.setattr(placement, "RESERVATION_TIMEOUT_S", 20)
    holder = ray.remote(resources={"game_pc": 1}, num_cpus=0)(type("Holder", (), {"there": lambda self: True}))
    first = holder.remote()
    ray.get(first.there.remote())
    assert place_env_runners(2, game_pcs)["num_env_runners"] == 1
    second = holder.remote()
    ray.get(second.there.remote())
    monkeypatch.setattr(placement, "RESERVATION_TIMEOUT_S", 1)
    with pytest.raises(ClusterError, match=r"expected a free place that offers CPU 1, game_pc 1.*join a worker"):
        place_env_runners(2, game_pcs)
    ray.kill(first)
    ray.kill(second)


@pytest.mark.parametrize("within_s", [0.0, 1.0])
def test_an_autoscaler_sees_every_place_that_a_cluster_is_asked_for(game_pcs, monkeypatch, caplog, within_s):
    asked = []

    def ask(bundles, name):
        asked.append(bundles)
        return real(bundles, name=name)

    real = placement.placement_group
    monkeypatch.setattr(placement, "placement_group", ask)
    with caplog.at_level(logging.WARNING, logger="soulsgraph"):
        assert place_env_runners(5, Session(local=False, places_within_s=within_s))["num_env_runners"] == 2
    assert asked == [[{"CPU": 1.0, "game_pc": 1.0}]] * 5
    assert ("waiting for 5 places" in caplog.text) == (within_s > 0.0)


def test_no_place_is_asked_of_a_session_of_ones_own_beyond_what_it_offers(game_pcs, monkeypatch):
    asked = []
    real = placement.placement_group
    monkeypatch.setattr(
        placement, "placement_group", lambda bundles, name: asked.append(name) or real(bundles, name=name)
    )
    assert place_env_runners(5, Session(local=True))["num_env_runners"] == 2
    assert len(asked) == 2


def test_further_gateways_are_on_the_game_pc_of_their_address(game_pcs):
    in_cluster = Session(local=False)
    assert place_relays([], in_cluster) == {}
    assert place_relays(["127.0.0.1:7444", "localhost:7445"], in_cluster) == {
        address: {"node:127.0.0.1": 0.001, "game_pc": 1.0} for address in ("127.0.0.1:7444", "localhost:7445")
    }


def test_a_session_of_ones_own_has_all_gateways_here(game_pcs):
    assert place_relays(["127.0.0.1:7444"], game_pcs) == {"127.0.0.1:7444": {}}


def test_a_gateway_at_an_address_of_no_game_pc_is_refused(game_pcs):
    expected = r"gateway: expected a node of the cluster that offers game_pc at 10\.9\.8\.7:7443.*correct `relays`"
    with pytest.raises(ClusterError, match=expected):
        place_relays(["10.9.8.7:7443"], Session(local=False))


def test_gateways_without_a_free_place_are_reported_and_waited_for(game_pcs, caplog, monkeypatch):
    monkeypatch.setattr(placement, "RESERVATION_TIMEOUT_S", 1)
    addresses = [f"127.0.0.1:{port}" for port in (7444, 7445, 7446)]
    with caplog.at_level(logging.WARNING, logger="soulsgraph"):
        assert [*place_relays(addresses, Session(local=False))] == addresses
    assert "not all of" in caplog.text


def test_a_game_pc_that_was_lost_is_waited_for_and_refuses_no_stage(game_pcs, caplog, monkeypatch):
    monkeypatch.setattr(placement, "RESERVATION_TIMEOUT_S", 1)
    there = ray.nodes()
    gone = {**there[0], "Alive": False, "NodeManagerAddress": "10.9.8.7", "Resources": {}}
    monkeypatch.setattr(ray, "nodes", lambda: [*there, gone])
    with caplog.at_level(logging.WARNING, logger="soulsgraph"):
        assert place_relays(["10.9.8.7:7443"], Session(local=False)) == {
            "10.9.8.7:7443": {"node:10.9.8.7": 0.001, "game_pc": 1.0}
        }
    assert "the stage goes on with the others" in caplog.text
