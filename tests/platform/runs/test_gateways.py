"""A fleet with two gateways by its commands: games at each, one killed and frozen, and the second on a game PC."""

import os
import re
import signal

import pytest

from fakes.clusters import LocalCluster, command_of
from fakes.fleet_in_folder import FleetInFolder, grows, require_once, require_replay, settle
from fakes.waiting import until
from soulsgraph_clusters.sessions.local_ray import free_port

pytestmark = pytest.mark.slow

ONE_GAME = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 2\n'


@pytest.fixture
def fleet(tmp_path):
    """Two PCs; the cellar dials the further gateway first, where `relay` says."""
    relay = f"127.0.0.1:{free_port()}"
    fleet = FleetInFolder(tmp_path, {"attic": ONE_GAME, "cellar": ONE_GAME}, f'relays = ["{relay}"]\n')
    fleet.relay = relay
    yield fleet
    fleet.close()


def _relay_pids(pids):
    """Return which of these processes are further gateways."""
    return [pid for pid in pids if any(word.startswith("ray::Relay") for word in command_of(pid)[:1])]


def test_a_killed_gateway_loses_nothing_and_its_games_go_on_at_the_other(fleet, monkeypatch):
    with LocalCluster(workers=1) as cluster:
        # A session that this process had before has left its own token there.
        monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        training = fleet.train(3.0, more=("--gateways", 2, "--address", cluster.address))

        def until_logged(text, count=1):
            until(lambda: len(re.findall(text, training.logs())) >= count or not training.running, text)
            assert training.running, training.logs()

        until_logged("gateway 2: listens")
        fleet.host("attic")
        fleet.host("cellar", head=f"{fleet.relay},127.0.0.1:{fleet.port}")
        until_logged("gateway 2: cellar/1 joined")
        grows(fleet, "attic")
        grows(fleet, "cellar")
        (pid,) = _relay_pids(cluster.workers[0].pids)
        os.kill(pid, signal.SIGKILL)
        until_logged("gateway 2: listens", count=2)
        grows(fleet, "cellar")
        # One that is frozen is as good as lost, and says so to nobody.
        (frozen,) = _relay_pids(cluster.workers[0].pids)
        assert frozen != pid
        os.kill(frozen, signal.SIGSTOP)
        until_logged("camera: cellar/1 joined")
        grows(fleet, "attic")
        grows(fleet, "cellar")
        os.kill(frozen, signal.SIGCONT)
        assert training.wait() == 0, training.logs()
        until(lambda: not _relay_pids(cluster.workers[0].pids), "the gateway's end")
    # The games' own counters agree with the journal, whichever way their chunks came.
    settle(fleet, ["attic/1", "cellar/1"]).require()
    require_once(fleet.records())
    assert {record.pc for record in fleet.records()} == {"attic", "cellar"}
    require_replay(fleet)
