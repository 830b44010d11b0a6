"""One head at a time uses a fleet's file, and only where it can listen."""

import socket

import pytest

from soulsgraph_clusters.fleet.protocol import settings
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, FleetSettings, sole_head


def test_a_second_head_is_refused_until_the_first_has_ended(tmp_path):
    fleet = Fleet(FleetSettings("127.0.0.1:0"), tmp_path)
    with sole_head(fleet), pytest.raises(FleetError), sole_head(fleet):
        pass
    with sole_head(fleet):
        pass


def test_an_address_of_another_machine_is_refused_at_once(tmp_path):
    # TEST-NET-1: nobody has it.
    settings = FleetSettings("192.0.2.1:7443", certificate="head.pem", key="head.key")
    refused = pytest.raises(FleetError, match="listen")
    with refused, sole_head(Fleet(settings, tmp_path)):
        pass


@pytest.mark.parametrize("name", ["listen", "metrics"])
def test_a_port_that_another_program_has_is_waited_for_and_then_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(settings, "HELD_FOR_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        fleet = Fleet(FleetSettings(**{"listen": "127.0.0.1:0", name: address}), tmp_path)
        refused = pytest.raises(FleetError, match=name)
        with refused, sole_head(fleet):
            pass
    with sole_head(fleet):
        pass
