"""A gateway's process by Ray, from stage to stage: killed between two of them, and where a stage cannot begin."""

import os
import signal
from contextlib import closing

import pytest

from fakes.fleet_here import played_for
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetGateway, FleetStage, GatewayRunner
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.store import FILE
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SkillOptions, make_skill
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

pytestmark = pytest.mark.slow
NUMBERS = DQNHyperparameters(budget=300, capacity=300)


@pytest.fixture(scope="module")
def session():
    with connect("local", num_cpus=1) as joined:
        yield joined


@pytest.fixture
def gateway(session, tmp_path):
    with closing(FleetGateway(Fleet(FleetSettings(f"127.0.0.1:{free_port()}"), tmp_path), session)) as opened:
        yield opened


def _built(gateway, name):
    fleet, process = gateway.fleet, gateway.process()
    stage = FleetStage(fleet, fleet.folder / name, name, "iudex-phase1", SkillOptions(), process=process)
    config = FleetDQN.get_default_config().debugging(log_level="ERROR")
    config = config.stage([make_skill("camera")], NUMBERS, steps_per_round=64, seed=0)
    config.env_runners(env_runner_cls=GatewayRunner, num_env_runners=1)
    return config.environment(env_config={FLEET: stage}).build_algo()


def _pid(algorithm):
    (pid,) = algorithm.env_runner_group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
    return pid


def _train(algorithm):
    pid = _pid(algorithm)
    while not algorithm.finished:
        algorithm.train()
    algorithm.stop()
    return pid


def test_one_process_serves_every_stage_and_another_one_takes_its_place_between_two(gateway, tmp_path):
    with played_for(gateway.fleet, [4]):
        first, second = _train(_built(gateway, "first")), _train(_built(gateway, "second"))
        assert first == second
        os.kill(second, signal.SIGKILL)
        assert _train(_built(gateway, "third")) != second
    assert all((tmp_path / name / FILE).exists() for name in ("first", "second", "third"))


def test_a_stage_that_cannot_begin_says_so_in_one_line_and_begins_once_that_is_over(gateway, tmp_path):
    _built(gateway, "first").stop()
    store = tmp_path / "second" / FILE
    store.parent.mkdir()
    store.write_text("no store", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(SoulsGraphError, match=FILE) as found:
            _built(gateway, "second")
        assert "\n" not in str(found.value)
    store.unlink()
    with played_for(gateway.fleet, [4]):
        _train(_built(gateway, "second"))
