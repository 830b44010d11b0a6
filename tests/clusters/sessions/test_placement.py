"""Places of runners: one each, kept over the stages of a command, and never promised where there is none."""

import pytest
import ray

from soulsgraph_clusters.sessions import session as placement
from soulsgraph_clusters.sessions.head import ClusterError
from soulsgraph_clusters.sessions.session import Session, connect, find_places

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started():
    """Two places for runners, and a processor that is no place."""
    with connect("local", num_cpus=3, resources={"game_pc": 2}):
        yield


@pytest.fixture
def game_pcs(started):
    """A command of its own, which leaves its places at the end."""
    session = Session(local=True)
    yield session
    for place in session.places:
        ray.util.remove_placement_group(place)


def test_a_place_is_a_processor_of_a_game_pc_where_there_are_any(game_pcs):
    assert [place.bundle_specs for place in find_places(2, game_pcs)] == [[{"CPU": 1.0, "game_pc": 1.0}]] * 2


def test_places_are_kept_from_stage_to_stage_and_another_command_waits(game_pcs, monkeypatch, caplog):
    first = find_places(1, game_pcs)
    assert find_places(1, game_pcs) == first
    assert len(find_places(2, game_pcs)) == 2
    monkeypatch.setattr(placement, "PLACED_WITHIN_S", 0.5)
    monkeypatch.setattr(placement, "_AT_ONCE_S", 0.0)
    with pytest.raises(ClusterError, match="2 of 2 game_pc"):
        find_places(1, Session(local=True))
    assert "ray status" in caplog.text


def test_in_a_ray_of_the_callers_own_each_command_leaves_its_places(started):
    for _ in range(2):
        with connect() as session:
            assert len(find_places(2, session)) == 2


def test_a_place_that_is_taken_is_none(game_pcs, monkeypatch):
    holder = ray.remote(resources={"game_pc": 1}, num_cpus=0)(type("Holder", (), {"there": lambda self: True}))
    first, second = holder.remote(), holder.remote()
    ray.get(first.there.remote())
    ray.get(second.there.remote())
    monkeypatch.setattr(placement, "PLACED_WITHIN_S", 1.0)
    with pytest.raises(ClusterError, match="game_pc"):
        find_places(2, game_pcs)
    ray.kill(first)
    monkeypatch.setattr(placement, "PLACED_WITHIN_S", 20.0)
    assert len(find_places(1, game_pcs)) == 1
    ray.kill(second)


def test_an_autoscaler_sees_every_place(game_pcs, monkeypatch):
    bundles, real = [], placement.placement_group
    monkeypatch.setattr(placement, "placement_group", lambda bundle: bundles.append(bundle) or real(bundle))
    assert len(find_places(5, game_pcs)) == 2
    assert bundles == [[{"CPU": 1.0, "game_pc": 1.0}]] * 5
