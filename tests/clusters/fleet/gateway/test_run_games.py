"""A run's own games: together, through kills, freezes and pauses, each step in the journal once."""

import logging
import os
import signal
from contextlib import closing

import pytest

from fakes.fleet_here import random_weights
from fakes.stored import everything
from fakes.waiting import until
from soulsgraph.runs.lineage import own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_clusters.fleet.actor import process
from soulsgraph_clusters.fleet.actor.player import Player
from soulsgraph_clusters.fleet.gateway import games
from soulsgraph_clusters.fleet.gateway.admission import ALTERED, Admission
from soulsgraph_clusters.fleet.gateway.games import RunGames
from soulsgraph_clusters.fleet.gateway.status import FleetStatus
from soulsgraph_clusters.fleet.protocol.settings import FleetSettings, State
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError
from soulsgraph_envs.games.link import GameSettings

SKILL, STAGE = "camera", "lock_on"
GAMES = (GameSettings("simulator", speed=20.0, lanes=4), GameSettings("simulator", speed=20.0, lanes=2))


@pytest.fixture
def setup(tmp_path, request):
    """A stage of 20,000 steps, or a part of them."""
    run = RunFolder.create(tmp_path / "run", Plan(preset="best", scale=getattr(request, "param", 1.0)))
    return StageSetup(run, own_stage(run, SKILL))


@pytest.fixture
def build(setup):
    """Build the stage's algorithm with games of this machine; all are stopped at the end."""
    built = []

    def make(games=GAMES):
        built.append(setup.build(Session(local=True), games=games))
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def play(algorithm, steps):
    """Train until this many steps were learned from."""
    until(lambda: algorithm.training_step() or algorithm.decisions >= steps, f"{steps} steps")


def _rows(algorithm):
    return {row.name: row for row in algorithm.status.games}


def _games(algorithm):
    """Return what keeps the games playing."""
    return algorithm._runner._gateway.games


def _records(setup):
    with closing(Journal(setup.run.journal(setup.key), SKILL, reading=True)) as journal:
        return everything(journal)


@pytest.mark.parametrize("setup", [0.05], indirect=True)
def test_games_train_a_stage_by_its_journal_and_the_last_line_is_the_account(setup, build, lines):
    algorithm = build()
    # One game may play the whole budget before the other is open: nothing is learned until both play.
    algorithm._send_unsent()
    begun = {f"camera: here/{number} joined, playing by simulator" for number in (1, 2)}
    until(lambda: algorithm._fetch() or begun <= {*lines()}, "play of both")
    until(lambda: algorithm.training_step() or algorithm.finished, "the budget")
    algorithm.stop()
    status = FleetStatus.last(setup.run.journal(setup.key), algorithm.attempt)
    came = status.decisions["here/journaled"]
    assert {*status.decisions} == {"here/journaled"}
    assert any(f"1,000 learned, {came - 1_000:,} over budget" in line for line in lines())
    assert {(row.name, row.lanes, row.state, row.connected) for row in status.games} == {
        ("here/1", 4, "stage over", False),
        ("here/2", 2, "stage over", False),
    }
    assert came == sum(row.finished - sum(row.lost.values()) for row in status.games)
    records = _records(setup)
    assert len({(one.game, one.boot, one.number) for one in records}) == len(records)
    assert came == sum(one.decisions for one in records)


def test_a_killed_game_is_started_again_while_the_other_plays_on(build, lines, monkeypatch):
    monkeypatch.setattr(process, "RESTART_AFTER_S", (0.5, 1.0))
    algorithm = build()
    algorithm._iteration_end = 10**9

    def finished(name):
        return _rows(algorithm)[name].finished if algorithm.status and name in _rows(algorithm) else 0

    until(lambda: algorithm.training_step() or (finished("here/1") and finished("here/2")), "play of both")
    killed = _games(algorithm)[0].game
    os.kill(killed.pid, signal.SIGKILL)
    other = finished("here/2")
    until(
        lambda: (
            algorithm.training_step()
            or (finished("here/2") > other and any("ended with code -9" in line for line in lines()))
        ),
        "play of the other",
    )
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.PLAYING, "another process")
    first = finished("here/1")
    until(lambda: algorithm.training_step() or finished("here/1") > first, "its play, added to the first one's")
    assert _games(algorithm)[0].game is not killed


@pytest.mark.slow
def test_a_frozen_game_is_named_and_plays_on_when_it_can(build, lines, monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.gateway.games.SILENT_AFTER_S", 2.0)
    algorithm = build(GAMES[:1])
    algorithm._iteration_end = 10**9
    play(algorithm, 50)
    pid = _games(algorithm)[0].game.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.LOST, "silence")
        assert any("here/1: silent for " in line for line in lines())
        assert algorithm.live_runners == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.PLAYING, "play")
    assert algorithm.live_runners == 1


@pytest.mark.slow
@pytest.mark.parametrize("setup", [0.1], indirect=True)
def test_a_kill_costs_nothing_that_was_in_the_journal(setup, build, tmp_path):
    algorithm = build()
    algorithm._iteration_end = 200
    play(algorithm, 200)
    algorithm.save_checkpoint(str(tmp_path))
    saved = algorithm.position
    algorithm._iteration_end = 400
    play(algorithm, 400)
    algorithm.stop()
    before = len(_records(setup))
    assert before > saved
    again = build()
    again.load_checkpoint(str(tmp_path))
    assert again.position == saved
    again._iteration_end = 10**9
    until(lambda: again.training_step() or again.finished, "the budget")
    again.stop()
    assert len(_records(setup)) >= before


def test_checkpoints_of_games_and_of_the_simulator_are_told_apart(setup, build, tmp_path):
    simulated, games = tmp_path / "simulated", tmp_path / "games"
    plain = setup.build(Session(local=True))
    plain.save_checkpoint(str(simulated))
    algorithm = build(GAMES[:1])
    with pytest.raises(SoulsGraphError, match="games"):
        algorithm.load_checkpoint(str(simulated))
    algorithm.save_checkpoint(str(games))
    with pytest.raises(SoulsGraphError, match="games"):
        plain.load_checkpoint(str(games))
    plain.stop()


def test_a_full_disk_loses_nothing_and_a_game_that_plays_frozen_skills_by_other_weights_gets_them_anew(
    tmp_path, lock_on_task, monkeypatch
):
    monkeypatch.setattr(games, "RETRY_AFTER_S", 0.05)
    journal = Journal(tmp_path / STAGE, STAGE)
    admission = Admission(journal, lock_on_task, 0, FleetSettings())
    write, failures, answered = admission.write, iter([True] * 3), []

    def poor(group, now_s):
        if next(failures, False):
            raise WriteError("journal", OSError(28, "the disk is full"))
        answered.extend(answers := write(group, now_s))
        if len(answered) == 1:
            answers[0][1].refused[ALTERED] = 1
        return answers

    admission.write = poor
    sent, message = [], admission.weights_message
    admission.weights_message = lambda snapshot, first: sent.append(first) or message(snapshot, first)
    playing = RunGames(admission, {"here/1": lambda: Player(GAMES[0])})
    playing.publish(1, random_weights(lock_on_task), {})
    try:
        until(lambda: journal.end > 2, "chunks")
    finally:
        playing.stop("the stage is over")
    notes, numbers = playing.notes.take(), [one.number for one in everything(journal)]
    journal.close()
    assert any("full" in note for note in notes)
    assert numbers == [*range(1, len(numbers) + 1)]
    assert sent == [True, True]
