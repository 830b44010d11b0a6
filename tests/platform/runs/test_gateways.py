"""A fleet with two gateways by its commands: games at each, one killed, and a cluster whose game PC has the second."""

import os
import re
import signal

import pytest

from fakes.clusters import LocalCluster, command_of
from fakes.fleet_in_folder import FleetInFolder, grows, read_records, require_once, require_replay, settle
from fakes.waiting import until
from soulsgraph.runs.run_folder import RunFolder
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


def _train(fleet, scale, *words, **options):
    """Start training, and the PCs once both gateways listen: on a busy machine the second may need long."""
    training = fleet.train(scale, more=("--gateways", 2, *words), **options)
    until(lambda: "gateway 2: listens" in training.logs() or not training.running, "the second gateway")
    assert training.running, training.logs()
    fleet.host("attic")
    fleet.host("cellar", head=f"{fleet.relay},127.0.0.1:{fleet.port}")
    return training


def _relay_pids(pids):
    """Return which of these processes are further gateways."""
    return [pid for pid in pids if any(word.startswith("ray::Relay") for word in command_of(pid)[:1])]


def test_a_killed_gateway_loses_nothing_and_its_games_go_on_at_the_other(fleet):
    training = _train(fleet, 4.0)

    def until_logged(text, count=1):
        until(lambda: len(re.findall(text, training.logs())) >= count or not training.running, text)
        assert training.running, training.logs()

    until_logged("gateway 2: cellar/1 joined")
    grows(fleet, "attic")
    grows(fleet, "cellar")
    (pid,) = _relay_pids(training.pids)
    os.kill(pid, signal.SIGKILL)
    until_logged("gateway 2: The actor ")
    until_logged("gateway 2: listens", count=2)
    grows(fleet, "cellar")
    # One that is frozen is as good as lost, and says so to nobody.
    (frozen,) = _relay_pids(training.pids)
    assert frozen != pid
    os.kill(frozen, signal.SIGSTOP)
    until_logged("camera: cellar/1 joined")
    grows(fleet, "attic")
    grows(fleet, "cellar")
    os.kill(frozen, signal.SIGCONT)
    assert training.wait() == 0, training.logs()
    # The games' own counters agree with the journal, whichever way their chunks came.
    settle(fleet, ["attic/1", "cellar/1"]).require()
    require_once(fleet.records())
    require_replay(fleet)


def test_games_at_both_gateways_stay_connected_through_a_curriculum(fleet):
    training = _train(fleet, 0.02, command=["curriculum"])
    assert training.wait() == 0, training.logs()
    for game in ("attic/1", "gateway 2: cellar/1"):
        # On a machine that stands still for seconds a game may leave, and come back.
        joined, left = (training.logs().count(f"{game} {what}") for what in ("joined", "left"))
        assert joined - left == 1, training.logs()
    journals, pcs = fleet.run / "journal", set()
    order = RunFolder.open(fleet.run).plan.skill_graph.order
    assert len(order) == 5
    for skill in order:
        records = read_records(journals / skill, skill)
        require_once(records)
        played = {record.pc for record in records if not record.refused}
        assert played, skill
        pcs |= played
    assert pcs == {"attic", "cellar"}


def test_a_second_gateway_runs_on_a_game_pc_of_the_cluster(fleet, monkeypatch):
    with LocalCluster(workers=1) as cluster:
        # A session that this process had before has left its own token there.
        monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        training = _train(fleet, 0.5, "--address", cluster.address)
        assert len(_relay_pids(cluster.workers[0].pids)) == 1
        assert training.wait() == 0, training.logs()
        assert "gateway 2: cellar/1 joined" in training.logs()
        until(lambda: not _relay_pids(cluster.workers[0].pids), "the gateway's end")
    require_once(fleet.records())
    assert {record.pc for record in fleet.records()} == {"attic", "cellar"}
    require_replay(fleet)
