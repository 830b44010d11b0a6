"""Remote runners that die, freeze or take long, on a Ray of one machine and without a game."""

import os
import re
import signal
import socket

import numpy as np
import pytest
import ray

from fakes.learning import DrawingRunner
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.errors import GameError, SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.learning import env_runners
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.env_runners import CHUNKS_PER_CALL, SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

pytestmark = pytest.mark.slow
ROUND = 128
HOST = socket.gethostname()


@pytest.fixture(scope="module", autouse=True)
def _session():
    with connect("local", num_cpus=4):
        yield


def make_stage(budget, synchronous=False, runner=DrawingRunner, callbacks=None, **sampled):
    config = SkillDQN.get_default_config().debugging(log_level="CRITICAL").callbacks(**callbacks or {})
    skills = [make_skill("camera")]
    config = config.stage(skills, skill_hyperparameters(budget), ROUND, seed=1, synchronous=synchronous)
    config = config.environment(env_config=sampled).env_runners(num_envs_per_env_runner=8)
    return config.env_runners(env_runner_cls=runner, num_env_runners=2, num_cpus_per_env_runner=1).build_algo()


@pytest.fixture(scope="module")
def stage():
    return make_stage(200_000)


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


def process_of(stage, index):
    (process,) = stage.env_runner_group.foreach_env_runner(
        lambda _: os.getpid(), local_env_runner=False, remote_worker_ids=[index]
    )
    return process


def train_until(stage, words, caplog):
    """Train until the log has these words."""
    while not re.search(words, caplog.text):
        stage.train()
        assert not stage.finished


def test_a_requested_stop_waits_for_the_end_of_the_round(stage):
    stage.stop_requested = lambda: stage.decisions > 0
    stage.train()
    assert 0 < stage.decisions <= 2 * CHUNKS_PER_CALL * ROUND
    stage.stop_requested = lambda: False
    stage.train()
    assert stage.decisions >= 1_000


def test_a_frozen_runner_holds_up_nothing_and_plays_when_it_is_back(stage, caplog, monkeypatch):
    monkeypatch.setattr(env_runners, "SILENT_AFTER_S", 2.0)
    process = process_of(stage, 1)
    os.kill(process, signal.SIGSTOP)
    try:
        train_until(stage, rf"camera: env runner 1 on {HOST} does not answer, \d of 2 play", caplog)
        before = stage.decisions
        stage.train()
        assert stage.decisions > before
        assert stage.live_runners < 2
    finally:
        os.kill(process, signal.SIGCONT)
    train_until(stage, rf"camera: env runner 1 on {HOST} is back, \d of 2 play", caplog)


def test_a_lost_runner_is_told_by_name_and_the_other_goes_on(stage, caplog):
    kill(stage.env_runner_group._worker_manager.actors()[1])
    train_until(stage, rf"camera: env runner 1 on {HOST} was lost, \d of 2 play", caplog)
    before = stage.decisions
    stage.train()
    assert stage.decisions > before
    assert stage.updates == (stage.decisions - 100) // 4
    assert stage.live_runners == 1


def test_a_stage_without_any_runner_gives_up(stage, caplog, monkeypatch):
    monkeypatch.setattr(env_runners, "ABANDONED_AFTER_S", 1.0)
    kill(stage.env_runner_group._worker_manager.actors()[2])
    with pytest.raises(SoulsGraphError, match=r"env runner 1 on .*env runner 2 on "):
        train_until(stage, "nothing", caplog)


def test_a_runner_that_dies_is_restarted_with_everything_it_plays_by(caplog):
    back = []

    def on_env_runners_recreated(*, env_runner_indices, **_):
        back.extend(env_runner_indices)

    def on_episode_end(*, episode, metrics_logger, **_):
        metrics_logger.log_value("own_return", episode.get_return(), window=100)

    # A budget that no machine uses up before Ray has restarted the runner.
    callbacks = {"on_env_runners_recreated": on_env_runners_recreated, "on_episode_end": on_episode_end}
    stage = make_stage(2_000_000, callbacks=callbacks)
    stage.env_runner_group.foreach_env_runner(lambda runner: None)  # Both are up.
    stage.training_step()
    first = stage.weights("camera")
    ray.kill(stage.env_runner_group._worker_manager.actors()[1], no_restart=False)
    # Where it runs is known once it has answered: the other may have been the first.
    train_until(stage, r"env runner 1( on .*)? was lost, \d of 2 play", caplog)
    train_until(stage, r"env runner 1 on .* is back, \d of 2 play", caplog)
    shown = stage.train()["env_runners"]
    assert back == [1]
    assert np.isfinite([shown["own_return"], shown["episode_return_mean"]]).all()
    assert stage.updates == (stage.decisions - 100) // 4
    played = stage.env_runner_group.foreach_env_runner(
        lambda runner: (runner.decisions["camera"], runner.weights("camera")), local_env_runner=False
    )
    for decisions, weights in played:
        assert 0 < decisions <= stage.decisions
        for name, values in weights.items():
            assert (values != first[name]).any(), name
    stage.stop()


def test_a_stage_is_left_while_a_runner_is_frozen(caplog, monkeypatch):
    monkeypatch.setattr(env_runners, "SILENT_AFTER_S", 2.0)
    stage = make_stage(200_000)
    stage.train()
    os.kill(process_of(stage, 2), signal.SIGSTOP)
    train_until(stage, "env runner 2 on .* does not answer", caplog)
    assert [len(weights) for weights in stage.copies("camera")] == [len(stage.weights("camera"))] * 3
    stage.stop()


def test_synchronous_runners_repeat_the_same_weights_however_slow_one_is():
    scenario = training_scenario(load_scenario("iudex-phase1"), make_skill("camera"))
    found = []
    for waits_s in ({}, {1: 0.2}):
        stage = make_stage(1_000, synchronous=True, waits_s=waits_s)
        while not stage.finished:
            stage.train()
        found.append(stage.weights("camera"))
        stage.stop()
    for _ in range(2):
        stage = make_stage(1_000, synchronous=True, runner=SkillGraphEnvRunner, scenario=scenario)
        while not stage.finished:
            stage.train()
        found.append(stage.weights("camera"))
        stage.stop()
    for first, second in (found[:2], found[2:]):
        for name, values in first.items():
            np.testing.assert_array_equal(values, second[name], err_msg=name)
    assert any((found[0][name] != found[2][name]).any() for name in found[0])


def failing_runners():
    """Return classes that workers get by value: they cannot import this module."""

    class Unmade(DrawingRunner):
        def make_env(self):
            if self.worker_index:
                raise GameError("game: expected the window of the game, found none; start it.")
            super().make_env()

    class Faulty(DrawingRunner):
        def sample(self, **_):
            return {}["no such value"]

    return Unmade, Faulty


@pytest.mark.parametrize(
    ("which", "cause"), [(0, "the window of the game"), (1, "KeyError: 'no such value'")], ids=["constructor", "code"]
)
def test_what_all_runners_fail_by_ends_the_stage_at_once(which, cause, monkeypatch):
    monkeypatch.setattr(env_runners, "ABANDONED_AFTER_S", 1e6)
    with pytest.raises(SoulsGraphError, match=cause):
        make_stage(200_000, runner=failing_runners()[which]).train()
