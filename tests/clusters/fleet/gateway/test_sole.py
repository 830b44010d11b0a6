"""One head at a time uses a fleet's file."""

import pytest

from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, FleetSettings, sole_head


def test_a_second_head_is_refused_until_the_first_has_ended(tmp_path):
    fleet = Fleet(FleetSettings("127.0.0.1:0"), tmp_path)
    with sole_head(fleet), pytest.raises(FleetError), sole_head(fleet):
        pass
    with sole_head(fleet):
        pass
