import pytest

from soulsgraph_clusters.placement import env_runner_placement
from soulsgraph_clusters.session import ClusterError


def test_runners_are_pinned_to_game_pcs_where_there_are_any():
    placement = env_runner_placement(2, {"CPU": 4.0, "game_pc": 2.0})
    assert placement["custom_resources_per_env_runner"] == {"game_pc": 1}


def test_runners_take_plain_processors_elsewhere():
    placement = env_runner_placement(2, {"CPU": 2.0})
    assert placement == {"num_env_runners": 2, "num_cpus_per_env_runner": 1, "custom_resources_per_env_runner": {}}


def test_no_runner_needs_no_place():
    assert env_runner_placement(0, {}) == {"num_env_runners": 0}


@pytest.mark.parametrize("resources", [{"CPU": 8.0, "game_pc": 1.0}, {"CPU": 1.0}, {}])
def test_more_runners_than_places_are_refused(resources):
    with pytest.raises(ClusterError, match="join more workers or ask for fewer"):
        env_runner_placement(2, resources)
