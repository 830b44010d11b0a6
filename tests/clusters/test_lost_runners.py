"""Remote runners that die or take long, on a Ray of one machine and without a game."""

import numpy as np
import pytest
import ray

from soulsgraph_clusters.session import connect
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies import algorithm
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.hyperparameters import skill_hyperparameters
from soulsgraph_policies.testing import LinearRunner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _session():
    with connect("local", num_cpus=4):
        yield


def make_stage(budget):
    config = SkillDQN.get_default_config().debugging(log_level="CRITICAL")
    config = config.stage([make_skill("camera")], skill_hyperparameters(budget), 128, seed=1)
    config = config.environment(env_config={"lanes": 8})
    return config.env_runners(env_runner_cls=LinearRunner, num_env_runners=2, num_cpus_per_env_runner=1).build_algo()


@pytest.fixture(scope="module")
def stage():
    return make_stage(20_000)


def kill(runner) -> None:
    """Kill a runner and wait until it is dead: Ray's kill does not wait."""
    ray.kill(runner)
    while _answers(runner):
        pass


def _answers(runner) -> bool:
    try:
        ray.get(runner.ping.remote())
    except ray.exceptions.RayActorError:
        return False
    return True


def test_a_stop_is_heeded_after_the_round(stage):
    stage.stop_requested = lambda: True
    stage.train()
    assert 0 < stage.decisions <= 128
    stage.stop_requested = lambda: False
    stage.train()
    assert stage.decisions >= 1_000


def test_a_lost_runner_is_told_and_its_chunk_not_counted(stage, caplog):
    runners = stage.env_runner_group._worker_manager._actors
    kill(runners[1])
    before = stage.decisions
    stage.training_step()
    assert stage.decisions == before + 64
    assert stage.updates == (stage.decisions - 100) // 4
    assert stage.live_runners == 1
    assert "camera: an env runner was lost, 1 of 2 play" in caplog.text


def test_a_stage_without_any_runner_gives_up(stage, monkeypatch):
    monkeypatch.setattr(algorithm, "ABANDONED_AFTER_S", 1.0)
    kill(stage.env_runner_group._worker_manager._actors[2])
    with pytest.raises(SoulsGraphError, match="expected a live one, found none for 1 s; join a game PC"):
        stage.train()


def test_runners_share_a_round_and_one_that_dies_stops_nothing():
    stage = make_stage(6_000)
    group = stage.env_runner_group
    stage.training_step()
    assert stage.decisions == 128
    ray.kill(group._worker_manager.actors()[1], no_restart=False)
    while not stage.finished:
        stage.train()
    assert stage.decisions == 6_000
    assert stage.updates == (6_000 - 100) // 4
    expected = stage.weights("camera")
    for weights in group.foreach_env_runner(lambda runner: runner.get_state()["rl_module"]["camera"]):
        for name, values in weights.items():
            np.testing.assert_array_equal(values, expected[name])
    stage.stop()
