"""Two PCs play one stage, and every batch holds the share of each that the fleet's file states."""

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from fakes.fleet_here import playing
from fakes.stored import append, stored
from fakes.waiting import until
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetStage, GatewayRunner, JournalRunner
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.security import Tokens, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import PC, Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import JOURNALED, Journal
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import ReplayBuffer

BUDGET, SEED, BATCH = 2000, 11, 64
NUMBERS = DQNHyperparameters(
    budget=BUDGET, capacity=1000, n_step=3, target_network_update_freq=400, train_batch_size_per_learner=BATCH
)
TASK = StageTask("iudex-phase1", {"camera": "camera", "lock_on": "lock_on"}, {"lock_on": NUMBERS}, 10.0)
#: The places of attic, cellar and all others in a replay's state, and their shares.
OTHERS, ATTIC, CELLAR = 0, 1, 2
SHARES = FleetSettings("127.0.0.1:0", pcs={"attic": PC(batch_share=0.3), "cellar": PC(batch_share=0.7)})


class GatewayInDriver(GatewayRunner):
    """A gateway in the driver's process, where a checkpoint has the state of runners, too."""

    def get_training_state(self):
        return {}


def _algorithm(stage, runner=JournalRunner, numbers=NUMBERS):
    config = FleetDQN.get_default_config().debugging(log_level="ERROR")
    config = config.stage(TASK.skills, numbers, steps_per_round=64, seed=SEED)
    return config.env_runners(env_runner_cls=runner).environment(env_config={FLEET: stage}).build_algo()


def _stage(folder, settings=SHARES):
    return FleetStage(Fleet(settings, folder), folder / "journal", "lock_on", TASK.scenario, SkillOptions())


def _playing(folder, port, pc, **settings):
    file = folder / f"{pc}.token"
    if not file.exists():
        write_token_file(file, Tokens(folder / "tokens.json").issue(pc))
    game = GameSettings(driver="simulator", **settings)
    return playing(Head(f"127.0.0.1:{port}", file), folder / pc, game)


def _weights(algorithm, folder):
    """Train to the end; return the weights and the whole state of training."""
    while not algorithm.finished:
        algorithm.train()
    algorithm.save_checkpoint(str(folder))
    return algorithm.weights("lock_on"), algorithm.training["lock_on"].get_state()


def _counted(monkeypatch):
    """Return a list that will have, of every batch, the rows of each source, drawn and in the replay."""
    counted, sample = [], ReplayBuffer.sample

    def counting(replay, *arguments):
        batch = sample(replay, *arguments)
        sources = replay.get_state()["by_source"]["sources"]
        there = np.bincount(sources, minlength=3)
        counted.extend((np.bincount(rows, minlength=3), there) for rows in sources[replay._drawn].reshape(-1, BATCH))
        return batch

    monkeypatch.setattr(ReplayBuffer, "sample", counting)
    return counted


def _same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A stage that attic begins and cellar joins; with counts of every batch, and what training came to."""
    folder = tmp_path_factory.mktemp("fleet")
    stage = _stage(folder)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as games:
        counted = _counted(patch)
        algorithm = _algorithm(stage, GatewayInDriver)
        games.callback(algorithm.stop)
        port, journal = algorithm.env_runner._gateway.port, algorithm.env_runner._journal
        algorithm.training_step()  # Which offers the first weights.
        with _playing(folder, port, "attic", lanes=1, speed=50.0):
            until(lambda: journal.decisions[f"attic/{JOURNALED}"] >= 400, "attic's decisions")
        games.enter_context(_playing(folder, port, "cellar", lanes=2, speed=50.0))
        until(lambda: journal.decisions[f"cellar/{JOURNALED}"] >= 250, "cellar's decisions")
        games.enter_context(_playing(folder, port, "attic", lanes=1, speed=50.0))
        found = _weights(algorithm, folder / "end")
    return stage, counted, found


def test_every_batch_holds_each_pcs_share_once_it_has_played(played):
    _, counted, _ = played
    both = [rows for rows, there in counted if there[ATTIC] and there[CELLAR]]
    alone = [rows for rows, there in counted if there[ATTIC] and not there[CELLAR]]
    assert len(both) > 100
    assert len(alone) > 50
    # 0.3 of 64 is 19.2. Even draws would scatter by 3.7 about what the replay holds.
    assert {rows[ATTIC] for rows in both} == {19, 20}
    assert all(rows[ATTIC] + rows[CELLAR] == BATCH for rows in both)
    assert all(rows[ATTIC] == BATCH for rows in alone)


def test_the_journal_leads_to_the_same_weights_without_the_fleets_file(played, tmp_path):
    stage, _, (weights, state) = played
    replayed = _algorithm(replace(stage, fleet=Fleet(FleetSettings(), tmp_path)))
    found, again = _weights(replayed, tmp_path / "end")
    replayed.stop()
    assert _same(found, weights)
    assert _same(again, state)


def test_a_checkpoint_goes_on_to_the_same_weights_and_sources(played, tmp_path):
    stage, _, (weights, state) = played
    first = _algorithm(stage)
    while first.decisions < 1000:
        first.train()
    sources = first.training["lock_on"].get_state()["replay"]["by_source"]["sources"]
    assert {*sources} == {ATTIC, CELLAR}
    first.save_checkpoint(str(tmp_path / "first"))
    first.stop()
    algorithm = _algorithm(stage)
    algorithm.load_checkpoint(str(tmp_path / "first"))
    assert np.array_equal(algorithm.training["lock_on"].get_state()["replay"]["by_source"]["sources"], sources)
    found, again = _weights(algorithm, tmp_path / "end")
    algorithm.stop()
    assert _same(found, weights)
    assert _same(again, state)


def _again(stage, folder, shares):
    """Return the stage with the same decisions in a journal of other shares."""
    kept = Journal(stage.journal, "lock_on", reading=True)
    journal = Journal(folder, "lock_on", batch_shares=shares)
    append(journal, kept.read(0, 10**6))
    journal.close()
    kept.close()
    return replace(stage, journal=folder)


@pytest.mark.parametrize("shares", [{}, {"attic": 0.9, "cellar": 0.1}])
def test_the_same_decisions_by_other_shares_lead_to_other_weights(played, tmp_path, shares):
    stage, _, (weights, _) = played
    algorithm = _algorithm(_again(stage, tmp_path / "journal", shares))
    found, state = _weights(algorithm, tmp_path / "end")
    algorithm.stop()
    assert ("by_source" in state["replay"]) == bool(shares)
    assert not _same(found, weights)


def test_pcs_without_a_share_of_their_own_are_drawn_for_what_is_left(played, tmp_path, monkeypatch):
    counted, cellar = _counted(monkeypatch), 1
    algorithm = _algorithm(_again(played[0], tmp_path / "journal", {"cellar": 0.75}))
    while not algorithm.finished:
        algorithm.train()
    algorithm.stop()
    both = [rows for rows, there in counted if there[OTHERS] and there[cellar]]
    assert {(rows[OTHERS], rows[cellar]) for rows in both} == {(16, 48)}


def test_a_stage_keeps_the_shares_that_it_was_begun_with_and_says_so(played, tmp_path):
    stage, _, _ = played
    shutil.copytree(stage.journal, tmp_path / "journal")
    other = FleetSettings("127.0.0.1:0", pcs={"attic": PC(batch_share=1.0)})
    algorithm = _algorithm(_stage(tmp_path, other), GatewayInDriver)
    answer = algorithm.env_runner.fetch(0)
    algorithm.stop()
    assert answer.batch_shares == {"attic": 0.3, "cellar": 0.7}
    assert "attic 0.3, cellar 0.7" in answer.notes[0]


def test_a_journal_keeps_the_batch_shares_that_it_was_begun_with(tmp_path):
    records = [stored(Chunk(boot="b0", sequence=sequence)) for sequence in range(40)]
    journal = Journal(tmp_path, "camera", batch_shares={"attic": 0.3, "cellar": 0.7})
    append(journal, records[:20])
    journal.close()
    again = Journal(tmp_path, "camera", batch_shares={"attic": 1.0})
    again.prune(again.end)
    append(again, records[20:])
    again.close()
    reader = Journal(tmp_path, "camera", reading=True)
    assert reader.first > 0
    assert again.batch_shares == reader.batch_shares == {"attic": 0.3, "cellar": 0.7}
    reader.close()


def test_a_learner_that_draws_by_priority_is_refused_by_name(tmp_path):
    with pytest.raises(SoulsGraphError, match="alpha"):
        _algorithm(_stage(tmp_path), GatewayInDriver, replace(NUMBERS, alpha=0.6, n_step=1))
    assert not os.listdir(tmp_path)
