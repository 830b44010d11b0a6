import logging

import pytest
import ray

from soulsgraph_clusters.sessions import session as placement
from soulsgraph_clusters.sessions.session import ClusterError, Session, connect, place_env_runners

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def game_pcs():
    """Two places for runners, and a processor that is no place."""
    with connect("local", num_cpus=3, resources={"game_pc": 2}) as session:
        yield session


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
    with pytest.raises(ClusterError, match="game_pc"):
        place_env_runners(2, game_pcs)
    ray.kill(first)
    ray.kill(second)


@pytest.mark.parametrize(("local", "asked"), [(True, 2), (False, 5)])
def test_an_autoscaler_sees_every_place_that_a_cluster_is_asked_for_and_a_private_session_only_its_own(
    game_pcs, monkeypatch, local, asked
):
    bundles, real = [], placement.placement_group
    monkeypatch.setattr(
        placement, "placement_group", lambda bundle, name: bundles.append(bundle) or real(bundle, name=name)
    )
    assert place_env_runners(5, Session(local=local))["num_env_runners"] == 2
    assert bundles == [[{"CPU": 1.0, "game_pc": 1.0}]] * asked
