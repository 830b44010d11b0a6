"""The stand-in as a program: attached from outside, played by real key events, ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fakes.stand_in import StandInProcess
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.memory_link import GameMemory, attach_game
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.games.standin.program import ended_by_signals
from soulsgraph_envs.games.x11 import XTestDevice


@pytest.fixture(scope="module")
def memory(display: str) -> Iterator[GameMemory]:
    """The memory of one stand-in for all tests that leave it running."""
    with StandInProcess(StandInOptions(map="stand-in", display=display)) as process:
        game = attach_game(GameSettings(pid=process.pid), load_address_map("stand-in"))
        with closing(game.reader):
            yield game.memory


def seconds(memory: GameMemory) -> float:
    return float(memory.read()["play_time_s"])


def test_speed_in_memory_is_the_speed_of_the_clock(memory: GameMemory) -> None:
    memory.write({"game_speed": 0.0})
    until(lambda: seconds(memory) == (time.sleep(0.05), seconds(memory))[1])
    stopped = seconds(memory)
    time.sleep(0.1)
    assert seconds(memory) == stopped
    memory.write({"game_speed": 3.0})
    begun, clock = seconds(memory), time.monotonic()
    # Far enough below 3 for a busy machine, above 1 all the same.
    until(lambda: seconds(memory) - begun > 1.2 * (time.monotonic() - clock) + 0.5)
    memory.write({"game_speed": 1.0})


def test_a_key_that_is_held_moves_the_player_until_it_comes_up(memory: GameMemory, device: XTestDevice) -> None:
    memory.write({"no_attack": 1.0})

    def place() -> tuple[float, ...]:
        reading = memory.read()
        return tuple(round(float(reading[name]), 3) for name in ("player_x", "player_y"))

    for key in ("s", "w"):
        begun = place()
        device.press(key)
        until(lambda begun=begun: place() != begun)
        device.release(key)
        until(lambda: place() == (time.sleep(0.1), place())[1])


def test_f5_pauses_the_game_and_lets_it_go_on(memory: GameMemory, device: XTestDevice) -> None:
    for paused in (True, False):
        device.press("f5")
        device.release("f5")
        until(lambda paused=paused: (seconds(memory) == (time.sleep(0.1), seconds(memory))[1]) is paused)


def test_what_keeps_it_from_starting_is_said() -> None:
    with pytest.raises(GameError, match="nowhere"):
        StandInProcess(StandInOptions(display=":987", scenario="nowhere"))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_with_its_settings_written_and_no_other_file_left(
    display: str, end: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = tmp_path_factory.mktemp("settings") / "games.toml"
    process = StandInProcess(StandInOptions(display=display, at="bonfire", settings=file))
    (settings,) = load_games(file)
    assert (settings.pid, settings.display) == (process.pid, display)
    game = attach_game(settings, load_address_map(settings.map))
    assert game.memory.read()["player_x"] == 104.0
    os.kill(process.pid, end)
    assert process.wait(PATIENCE_S) == (0 if end == signal.SIGTERM else -end)
    assert not list(tmp_path.iterdir())
    game.reader.close()
    process.close()


def test_an_end_that_was_asked_for_is_kept_where_what_the_handler_raised_was_lost() -> None:
    with ended_by_signals() as asked:
        assert not asked.is_set()
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        assert asked.is_set()
