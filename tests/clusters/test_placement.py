import logging

import pytest
import ray

from soulsgraph_clusters import session as placement
from soulsgraph_clusters.session import ClusterError, Session, connect, place_env_runners

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
    monkeypatch.setattr(placement, "RESERVATION_TIMEOUT_S", 1)
    holder = ray.remote(resources={"game_pc": 1}, num_cpus=0)(type("Holder", (), {"there": lambda self: True}))
    first = holder.remote()
    ray.get(first.there.remote())
    assert place_env_runners(2, game_pcs)["num_env_runners"] == 1
    second = holder.remote()
    ray.get(second.there.remote())
    with pytest.raises(ClusterError, match=r"expected a free place that offers CPU 1, game_pc 1.*join a worker"):
        place_env_runners(2, game_pcs)
    ray.kill(first)
    ray.kill(second)
