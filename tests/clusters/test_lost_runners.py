"""Remote runners that die or take long, on a Ray of one machine and without a game."""

import pytest
import ray

from soulsgraph_clusters.session import connect
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies import algorithm
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.hyperparameters import skill_hyperparameters
from soulsgraph_policies.testing import LinearRunner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage():
    with connect("local", num_cpus=2):
        config = SkillDQN.get_default_config().debugging(seed=1, log_level="CRITICAL")
        config = config.stage([make_skill("camera")], skill_hyperparameters(20_000), 128)
        config = config.environment(env_config={"lanes": 8})
        yield config.env_runners(env_runner_cls=LinearRunner, num_env_runners=2).build_algo()


def kill(runner) -> None:
    """Kill a runner and wait until it is dead: Ray's kill only asks for it."""
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
