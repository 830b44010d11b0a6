import re
import shutil
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from fakes.fleet_here import random_weights
from fakes.stored import append, message, stored
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway import runner as gateway_runner
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetStage, GatewayRunner, JournalRunner
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, GameStatus
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import encode_columns
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.files import FullDiskError
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

BUDGET, SEED = 1500, 11
NUMBERS = DQNHyperparameters(budget=BUDGET, capacity=500, n_step=3, target_network_update_freq=400)
TASK = StageTask("iudex-phase1", {"camera": "camera", "lock_on": "lock_on"}, {"lock_on": NUMBERS}, 10.0)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A journal of two games' chunks in turn, every fifth refused, with more decisions than the budget."""
    folder = tmp_path_factory.mktemp("fleet")
    journal = Journal(folder / "journal", "lock_on")
    samplers = [TASK.sampler(make_game(3), seed) for seed in (1, 2)]
    for sampler in samplers:
        sampler.set_networks(TASK.networks(random_weights(TASK)))
    for number in range(60):
        game, sampler = number % 2, samplers[number % 2]
        played = sampler.sample(20 + number)
        chunk = Chunk(
            boot=f"{game:016x}",
            sequence=number,
            decisions={"lock_on": len(played.transitions["lock_on"])},
            columns=encode_columns(played),
        )
        refused = "stale" if number % 5 == 4 else ""
        append(journal, [stored(chunk, game=str(game), first_lane=3 * game, refused=refused)])
    journal.close()
    return FleetStage(Fleet(FleetSettings(), folder), folder / "journal", "lock_on", TASK.scenario, SkillOptions())


def _algorithm(stage, runner=JournalRunner):
    config = FleetDQN.get_default_config().debugging(log_level="ERROR")
    config = config.stage(TASK.skills, NUMBERS, steps_per_round=64, seed=SEED)
    return config.env_runners(env_runner_cls=runner).environment(env_config={FLEET: stage}).build_algo()


def _trained(stage, until=BUDGET):
    algorithm = _algorithm(stage)
    while algorithm.decisions < until:
        algorithm.train()
    return algorithm


def _weights(algorithm):
    weights = algorithm.weights("lock_on")
    algorithm.stop()
    return weights


def _equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def weights(stage):
    return _weights(_trained(stage))


def test_what_arrives_together_changes_no_weight(stage, weights, monkeypatch):
    monkeypatch.setattr(gateway_runner, "MOST_CHUNKS", 7)
    assert _equal(_weights(_trained(stage)), weights)


def test_what_was_played_on_top_of_other_frozen_weights_is_not_learned(stage):
    algorithm = _algorithm(stage)
    frozen = algorithm._frozen
    assert len(frozen) == 32
    journal = Journal(stage.journal, stage.name, reading=True)
    records = journal.read(0, 3)
    journal.close()
    found = []
    for record, digest in zip(records, (frozen, b"", b"a" * 32), strict=True):
        chunk = message(record)
        chunk.frozen = digest
        found.append(gateway_runner.read_chunk(stored(chunk), TASK, frozen) is not None)
    assert found == [True, True, False]
    algorithm.stop()


def test_a_checkpoint_goes_on_in_the_journal_to_the_same_weights(stage, weights, tmp_path):
    first = _trained(stage, until=1000)
    position = first.position
    first.save_checkpoint(str(tmp_path))
    first.stop()
    algorithm = _algorithm(stage)
    algorithm.load_checkpoint(str(tmp_path))
    assert algorithm.position == position > 0
    while not algorithm.finished:
        algorithm.train()
    assert _equal(_weights(algorithm), weights)


def test_the_journal_keeps_what_comes_after_the_checkpoint_that_was_resumed(stage, tmp_path, monkeypatch):
    first = _trained(stage, until=500)
    resumed, pruned = first.position, []
    first.save_checkpoint(str(tmp_path / "first"))
    first.stop()
    algorithm = _algorithm(stage)
    monkeypatch.setattr(JournalRunner, "prune", lambda _, before: pruned.append(before), raising=False)
    group = algorithm.env_runner_group
    monkeypatch.setattr(
        group, "foreach_env_runner", lambda call, **_: [call(group.local_env_runner)] if callable(call) else []
    )
    algorithm.load_checkpoint(str(tmp_path / "first"))
    monkeypatch.setattr(gateway_runner, "MOST_CHUNKS", 5)
    for name in ("second", "third"):
        algorithm.training_step()
        algorithm.training_step()
        algorithm.save_checkpoint(str(tmp_path / name))
    assert pruned[0] == resumed < pruned[1] < algorithm.position
    algorithm.stop()


def _saves(algorithm, folder):
    """Train to the end as a stage is trained, saving what is due; return the positions of the checkpoints."""
    positions = []
    while not algorithm.finished:
        algorithm.train()
        if algorithm.checkpoint_due:
            algorithm.save_checkpoint(str(folder / str(len(positions))))
            positions.append(algorithm.position)
            assert not algorithm.checkpoint_due
    return positions


class GatewayInDriver(GatewayRunner):
    """A gateway in the driver's process, where a checkpoint has the state of runners, too."""

    def get_training_state(self):
        return {}


def test_a_stage_that_fills_its_journal_again_and_again_comes_to_its_end(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.runner._KEPT_BYTES", 100_000)
    settings = FleetSettings("127.0.0.1:0", journal_mb=0.2)
    small = replace(stage, fleet=Fleet(settings, tmp_path), journal=tmp_path / "journal")
    algorithm = _algorithm(small, GatewayInDriver)
    journal, largest, full, over = algorithm.env_runner._journal, 0, 0, threading.Event()
    copied = Journal(stage.journal, "lock_on", reading=True)
    records = copied.read(0, 1000)
    copied.close()

    def write():
        nonlocal largest, full
        for record in records:
            while not over.is_set():
                try:
                    append(journal, [record])
                    break
                except FullDiskError:
                    full += 1
                    time.sleep(0.01)
            largest = max(largest, journal.size_bytes)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        # Nothing is pruned before the first checkpoint, so that it must come.
        until(lambda: full, "a full journal")
        positions = _saves(algorithm, tmp_path)
        first = journal.first
    finally:
        over.set()
        writer.join()
        algorithm.stop()
    assert 150_000 < largest <= 200_000
    assert 0 < first <= positions[-2]


def test_a_replay_of_a_pruned_journal_says_what_is_missing(stage, tmp_path):
    shutil.copytree(stage.journal, tmp_path / "journal")
    journal = Journal(tmp_path / "journal", "lock_on")
    journal.prune(journal.end)
    assert journal.first > 0
    journal.close()
    algorithm = _algorithm(replace(stage, journal=tmp_path / "journal"))
    with pytest.raises(SoulsGraphError):
        algorithm.train()
    algorithm.stop()


def test_every_decision_that_came_is_learned_over_budget_or_refused(stage, caplog):
    algorithm = _trained(stage)
    journal = Journal(stage.journal, "lock_on", reading=True)
    records = journal.read(0, 1000)
    came = sum(record.decisions for record in records)
    refused = sum(record.decisions for record in records if record.refused)
    assert algorithm.decisions == BUDGET < came - refused
    # Ray writes lines of its own when a process builds its first algorithm.
    (account,) = [line.getMessage() for line in caplog.records if line.name == "soulsgraph"]
    counts = [f"{count:,}" for count in (BUDGET, came - refused - BUDGET, refused)]
    assert re.findall(r"\d[\d,]*\d", account) == counts
    assert algorithm.updates == NUMBERS.updates_owed(BUDGET, 0)
    journal.close()
    algorithm.stop()


def test_a_checkpoint_of_another_attempt_is_refused(stage, tmp_path):
    first = _trained(stage, until=1000)
    first.attempt = "another"
    first.save_checkpoint(str(tmp_path))
    first.stop()
    algorithm = _algorithm(stage)
    algorithm.load_checkpoint(str(tmp_path))
    with pytest.raises(SoulsGraphError, match="another"):
        algorithm.train()
    algorithm.stop()


def test_a_journal_that_ends_before_the_budget_is_an_error(stage):
    algorithm = _algorithm(stage)
    algorithm.position = 50
    with pytest.raises(SoulsGraphError):
        algorithm.train()
    algorithm.stop()


def _status(*games):
    return FleetStatus("lock_on", "a1", 0.0, 1, 9, {}, games)


def _game(name, state, connected=True, note=""):
    numbers = {"ticks_per_s": 0.0, "ideal_ticks_per_s": 10.0, "stale_ticks": 0.0, "silent_s": 0.1, "waiting_chunks": 0}
    return GameStatus(name, "memory", 1, state, note, finished=0, connected=connected, **numbers)


def test_a_game_that_a_person_put_aside_is_waited_for_and_others_not_longer_than_said(stage, caplog):
    algorithm = _algorithm(stage)

    def waits(*games, since_s):
        algorithm.status, algorithm.live_runners = _status(*games), sum(game.connected for game in games)
        algorithm._last_chunk_s = time.monotonic() - since_s
        algorithm._wait_for_games(False)

    broken = _game("attic/1", "broken", note="no window")
    for state in ("paused", "drained"):
        waits(broken, _game("cellar/1", state), since_s=1e4)
    waits(broken, since_s=200.0)
    # One that was paused and is gone plays no more than others.
    for games, named in (
        ((broken, _game("cellar/1", "paused", connected=False)), "attic/1.*no window.*cellar/1"),
        ((_game("cellar", "not seen", connected=False),), "cellar"),
    ):
        with pytest.raises(UnavailableError, match=named):
            waits(*games, since_s=301.0)
    caplog.clear()
    for _ in range(3):
        waits(since_s=6.0)
    lines = [line.getMessage() for line in caplog.records if line.name == "soulsgraph"]
    assert len(lines) == 1, "once, however often it is looked at"
    algorithm.stop()
