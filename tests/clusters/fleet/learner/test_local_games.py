"""Games of this machine hand over what they play: together, through kills and pauses, each step counted once."""

import io
import logging
import os
import signal

import numpy as np
import pytest

from fakes.waiting import until
from soulsgraph.runs.lineage import own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_clusters.fleet.actor import host
from soulsgraph_clusters.fleet.actor.local_game import PlayReport, read_message, write_message
from soulsgraph_clusters.fleet.actor.spool import AFTER_FIGHT, pause, resume
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, read_status
from soulsgraph_clusters.fleet.learner.games import LOST_STEPS, PLAYED
from soulsgraph_clusters.fleet.protocol.settings import State
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import GameSettings

SKILL = "camera"
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


def play_no_further(algorithm, steps):
    """Train until this many steps were learned from, and at most a round more, whatever was played meanwhile."""
    algorithm._iteration_end = steps
    play(algorithm, steps)


def _rows(algorithm):
    return {row.name: row for row in algorithm.status.games}


@pytest.mark.parametrize("setup", [0.05], indirect=True)
def test_games_train_a_stage_without_a_byte_on_disk_and_the_last_line_is_the_account(setup, build, lines):
    algorithm = build()
    algorithm._iteration_end = 10**9
    # One game may play the whole budget before the other is open: nothing is learned until both play.
    algorithm._send_unsent()
    begun = {f"game {number}: playing by simulator" for number in (1, 2)}
    until(lambda: begun <= {*lines()}, "play of both")
    until(lambda: algorithm.training_step() or algorithm.finished, "the budget")
    algorithm.stop()
    status = FleetStatus.last(setup.run.games(setup.key))
    played = status.decisions[PLAYED]
    assert status.decisions == {"here/played": played, "here/learned": 1_000}
    assert any(f"{played - 1_000:,}" in line for line in lines())
    assert {(row.name, row.lanes, row.state, row.connected) for row in status.games} == {
        ("here/1", 4, "stage over", False),
        ("here/2", 2, "stage over", False),
    }
    assert played == sum(row.finished - sum(row.lost.values()) for row in status.games)
    files = {path.relative_to(setup.run.path).as_posix() for path in (setup.run.path / "games").rglob("*.*")}
    assert files == {f"games/{setup.key}/status.json"}
    assert not setup.run.journal(setup.key).exists()
    assert not (setup.run.path / "spool").exists()


@pytest.mark.slow
def test_lanes_and_episodes_of_games_and_of_their_processes_are_apart(build):
    algorithm = build()
    algorithm._iteration_end = 10**9
    chunks, take = [], algorithm._runner.collect

    def collect():
        chunks.extend(taken := take())
        return taken

    algorithm._runner.collect = collect

    def lanes():
        return [np.unique(chunk.transitions[SKILL].lanes) for chunk in chunks]

    def every_lane():
        return {lane for each in lanes() for lane in each.tolist()} == {0, 1, 2, 3, 4, 5}

    def processes():
        return {
            (int(episode) >> 32, lane < 4)
            for chunk in chunks
            for episode, lane in zip(
                chunk.transitions[SKILL].episodes.tolist(), chunk.transitions[SKILL].lanes.tolist(), strict=True
            )
        }

    # One game may play for long before the other is open.
    until(lambda: algorithm.training_step() or every_lane(), "play of every lane")
    os.kill(algorithm._runner.games[0].pid, signal.SIGKILL)
    # What the killed process handed over may still wait.
    until(lambda: algorithm.training_step() or len(processes()) > 2, "play of the next process")
    assert every_lane()
    assert all((each < 4).all() or (each >= 4).all() for each in lanes())
    assert sorted(first for _, first in processes()) == [False, True, True]


def test_a_killed_game_is_started_again_while_the_other_plays_on_and_every_step_is_counted(build, lines, monkeypatch):
    monkeypatch.setattr(host, "RESTART_AFTER_S", (0.5, 1.0))
    algorithm = build()
    algorithm._iteration_end = 10**9
    first, second = algorithm._runner.games
    until(lambda: algorithm.training_step() or (first.played and second.played), "play of both")
    os.kill(killed := first.pid, signal.SIGKILL)
    other = second.played
    until(lambda: second.played > other and any("ended with code -9" in line for line in lines()), "play of the other")
    until(lambda: first.pid not in (0, killed), "another process")
    played = first.played
    until(lambda: algorithm.training_step() or first.played > played, "play of the next process")
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].lost, "a count")
    lost = _rows(algorithm)["here/1"].lost
    assert set(lost) == {"process ended"}
    # What is in doubt for three seconds of the game's time, and what a quarter of a second brings.
    assert 0 < lost["process ended"] < 4 * 300
    algorithm.stop()
    rows = _rows(algorithm)
    assert algorithm.status.decisions[PLAYED] == sum(row.finished - sum(row.lost.values()) for row in rows.values())


@pytest.mark.slow
def test_a_frozen_game_is_named_and_plays_on_when_it_can(build, lines, monkeypatch):
    monkeypatch.setattr("soulsgraph_clusters.fleet.learner.games.SILENT_AFTER_S", 2.0)
    algorithm = build(GAMES[:1])
    algorithm._iteration_end = 10**9
    play(algorithm, 50)
    pid = algorithm._runner.games[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.LOST, "silence")
        assert any(line.startswith("game 1: silent for ") for line in lines())
        assert algorithm.live_runners == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.PLAYING, "play")
    assert algorithm.live_runners == 1


@pytest.mark.slow
def test_a_person_pauses_the_games_and_lets_them_play_again(setup, build):
    algorithm = build(GAMES[:1])
    algorithm._iteration_end = 10**9
    play(algorithm, 50)
    folder = setup.run.games(setup.key).parent
    pause(folder, AFTER_FIGHT)
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.PAUSED, "a pause")
    assert _rows(algorithm)["here/1"].is_put_aside
    assert algorithm._runner.games[0].pid == 0
    # Nothing comes, and nobody counts the time.
    algorithm.alone_for_s = 0.0
    while algorithm._runner.sample():
        pass
    decisions = algorithm.decisions
    algorithm.training_step()
    assert algorithm.decisions == decisions
    assert resume(folder)
    algorithm.alone_for_s = 300.0
    play(algorithm, decisions + 50)
    until(lambda: algorithm.training_step() or _rows(algorithm)["here/1"].state == State.PLAYING, "play")


@pytest.mark.slow
def test_a_game_that_cannot_be_opened_is_named_and_tried_again_while_the_other_plays(build, lines):
    algorithm = build((GameSettings("memory", display=":9999"), GAMES[0]))
    algorithm._iteration_end = 10**9
    play(algorithm, 100)
    # The rows are of one moment, at which the second may still have been opening its game; the line has its own.
    until(
        lambda: (
            algorithm.training_step()
            or ([row.state for row in algorithm.status.games] == [State.BROKEN, State.PLAYING])
        ),
        "a game that cannot play beside one that does",
    )
    until(lambda: any(line.startswith("game 1") and ":9999" in line for line in lines()), "its name")


def end_as_killed(algorithm, setup):
    """Stop games as a killed process leaves them, whose last file says what was played; return how much that was."""
    algorithm._written_s = 0.0
    algorithm._write()
    file = setup.run.games(setup.key) / "status.json"
    status = file.read_bytes()
    algorithm.stop()
    file.write_bytes(status)
    return read_status(setup.run.path / "games").decisions[PLAYED]


# While the learner is kept waiting, the games may play more than the steps that are asked for here.
@pytest.mark.slow
@pytest.mark.parametrize("setup", [0.1], indirect=True)
def test_what_a_kill_costs_is_counted_when_the_stage_goes_on(setup, build, lines, tmp_path):
    algorithm = build()
    play_no_further(algorithm, 200)
    algorithm.save_checkpoint(str(tmp_path))
    saved, taken = algorithm.decisions, algorithm.taken
    play_no_further(algorithm, saved + 200)
    lost = end_as_killed(algorithm, setup) - taken
    assert lost >= 200
    again = build()
    again.load_checkpoint(str(tmp_path))
    again._iteration_end = saved
    again.training_step()
    assert any(f"{lost:,}" in line and f"{saved:,}" in line for line in lines())
    assert again.lost == lost
    # A second kill before the next checkpoint adds what was played meanwhile, and forgets nothing.
    play_no_further(again, saved + 100)
    lost += end_as_killed(again, setup) - taken
    third = build()
    third.load_checkpoint(str(tmp_path))
    third._iteration_end = 10**9
    until(lambda: third.training_step() or third.finished, "the budget")
    third.stop()
    assert third.lost == FleetStatus.last(setup.run.games(setup.key)).decisions[LOST_STEPS] == lost


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
    state = algorithm.get_state()
    del state["games"]
    with pytest.raises(SoulsGraphError, match="journal"):
        algorithm.set_state(state | {"journal": {"attempt": "a", "position": 7}})
    plain.stop()


def test_a_message_that_is_not_whole_is_the_end():
    pipe = io.BytesIO()
    write_message(pipe, PlayReport(notes=("a",)))
    whole = pipe.getvalue()
    assert read_message(io.BytesIO(whole)).notes == ("a",)
    for size in (0, 3, 8, len(whole) - 1):
        with pytest.raises(EOFError):
            read_message(io.BytesIO(whole[:size]))
