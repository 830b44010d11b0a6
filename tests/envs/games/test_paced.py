"""The simulator as a game of a game PC: its pace, its outcomes, and what its settings may say."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.realtime import FakeTime
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.cycle_timer import StoppedError, stoppable
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.live_game import PacedSimulator
from soulsgraph_envs.games.opening import make_game, open_game
from soulsgraph_envs.testing import check_game, play, sample_controls

SCENARIO = load_scenario("iudex-phase1")
SETTINGS = GameSettings(driver="simulator", lanes=3)


def seeds(lanes: int) -> np.ndarray:
    return np.arange(lanes, dtype=np.uint64) + np.uint64(40)


def opened(speed: float = 1.0, lanes: int = 3) -> tuple[PacedSimulator, FakeTime]:
    """Open the game as a game PC does, on a clock on which only waiting passes time."""
    passing = FakeTime()
    game = open_game(replace(SETTINGS, speed=speed, lanes=lanes), passing.clock)
    assert isinstance(game, PacedSimulator)
    return game, passing


def test_the_contract_of_a_game_is_kept() -> None:
    check_game(lambda lanes: opened(lanes=lanes)[0], SCENARIO)


def test_outcomes_are_the_unpaced_simulators_bit_for_bit() -> None:
    lanes = 8
    controls = sample_controls(lanes, ticks=100, seed=lanes)
    paced, unpaced = opened(20.0, lanes)[0], make_game(lanes)
    assert (paced.capabilities.can_pause, paced.capabilities.supplies) == (False, unpaced.capabilities.supplies)
    outcomes = [play(game, SCENARIO, seeds(lanes), controls) for game in (paced, unpaced)]
    assert np.array_equal(*outcomes, equal_nan=True)


@pytest.mark.parametrize("speed", [0.1, 100.0])
def test_every_tick_takes_its_time_at_its_speed(speed: float) -> None:
    game, passing = opened(speed)
    game.reset(np.arange(3), SCENARIO, seeds(3))
    # Nobody waits for a game that has only begun to be looked at.
    passing.pass_by(50.0)
    begun_s = passing.now_s
    for tick in range(1, 31):
        if tick % 5 == 0:
            passing.pass_by(0.01 / speed)
            game.reset(np.array([1]), SCENARIO, seeds(1))
        game.step(np.zeros(3, np.uint32))
        assert passing.now_s - begun_s == pytest.approx(tick * 0.1 / speed)
    assert game.timer.report().overruns == 0


def test_waiting_for_a_tick_ends_when_playing_is_stopped() -> None:
    stop = threading.Event()
    game = open_game(SETTINGS, stoppable(stop))
    game.reset(np.arange(3), SCENARIO, seeds(3))
    game.step(np.zeros(3, np.uint32))
    stop.set()

    def play_on() -> None:
        # Where a machine was busy the next tick may be due already, and nothing waits for it.
        while True:
            game.step(np.zeros(3, np.uint32))

    with pytest.raises(StoppedError):
        play_on()
    game.close()


# Its table in a games' file.


def games_file(folder: Path, *lines: str) -> Path:
    file = folder / "games.toml"
    file.write_text("\n".join(["[[games]]", *lines]))
    return file


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        *((['driver = "simulator"', f"lanes = {wrong}"], "lanes") for wrong in ("0", "257", "2.5", "true")),
        *((['driver = "simulator"', f"speed = {wrong}"], "speed") for wrong in ("0.0", "101.0", "nan")),
        (["lane = 8"], "lane"),
        (['driver = "simulators"'], "driver"),
        # What the simulator can have, a running game cannot.
        *(([f'driver = "{driver}"', "lanes = 2"], "lanes") for driver in ("memory", "siphon")),
        (['driver = "siphon"', "speed = 3.5"], "speed"),
    ],
)
def test_values_that_no_game_can_have_are_refused_by_file_and_key(tmp_path: Path, lines: list[str], named: str) -> None:
    file = games_file(tmp_path, *lines)
    with pytest.raises(SoulsGraphError, match=rf"{file}.*\b{named}\b"):
        load_games(file)
