"""The stand-in as a program: attached from outside, played by real key events, misbehaving."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.memory_link import AttachedGame, attach_game
from soulsgraph_envs.games.standin.launch import StandInOptions, StandInProcess, ended_by_signals
from soulsgraph_envs.games.x11 import XTestDevice


@pytest.fixture(scope="module")
def game(display: str) -> Iterator[StandInProcess]:
    """One stand-in for all tests that leave it running."""
    with StandInProcess(StandInOptions(map="stand-in", display=display)) as process:
        yield process


@contextmanager
def attached(pid: int, name: str = "stand-in") -> Iterator[AttachedGame]:
    found = attach_game(GameSettings(pid=pid), load_address_map(name))
    yield found
    found.reader.close()


def test_speed_in_memory_is_the_speed_of_the_clock(game: StandInProcess) -> None:
    with attached(game.pid) as seen:
        seen.memory.write({"game_speed": 0.0})
        until(lambda: game.state()["game_speed"] == 0.0)
        stopped = seen.memory.read()["play_time_s"]
        time.sleep(0.1)
        assert seen.memory.read()["play_time_s"] == stopped
        seen.memory.write({"game_speed": 3.0})
        begun, clock = game.state()["play_time_s"], time.monotonic()
        # Far enough below 3 for a busy machine, above 1 all the same.
        until(lambda: game.state()["play_time_s"] - begun > 1.2 * (time.monotonic() - clock) + 0.5)
        seen.memory.write({"game_speed": 1.0})
        until(lambda: game.state()["game_speed"] == 1.0)


def misbehave(game: StandInProcess, words: str) -> None:
    """Let it misbehave, or no longer, and wait until it has begun to."""
    game.tell(words)
    game.expect("misbehaving", PATIENCE_S)


def test_a_hanging_game_answers_after_its_time_and_frozen_memory_shows_a_fight_that_goes_on(
    game: StandInProcess,
) -> None:
    with attached(game.pid) as seen:
        begun_s = time.monotonic()
        misbehave(game, "hang 1")
        assert game.state()["stage"] == "playing"
        assert time.monotonic() - begun_s >= 1.0
        misbehave(game, "freeze")
        shown, truly = seen.memory.read(), game.state()["play_time_s"]
        assert until(lambda: game.state()["play_time_s"] > truly + 0.2)
        assert seen.memory.read() == shown
        misbehave(game, "freeze 0")
        assert until(lambda: float(seen.memory.read()["play_time_s"]) > truly)


def test_dropped_keys_and_a_stalled_window_do_nothing_then(game: StandInProcess, device: XTestDevice) -> None:
    for word in ("drop", "stall"):
        misbehave(game, word)
        device.press("d")
        time.sleep(0.1)
        assert game.state()["keys"] == []
        device.release("d")
        misbehave(game, f"{word} 0")
        device.press("d")
        assert until(lambda: game.state()["keys"] == ["d"])
        device.release("d")
        assert until(lambda: game.state()["keys"] == [])


@pytest.mark.parametrize("command", ["dance", "speed nan", "speed slow"])
def test_an_impossible_command_is_answered_and_changes_nothing(game: StandInProcess, command: str) -> None:
    game.tell(command)
    assert command.split()[-1] in game.expect("error", PATIENCE_S)["message"]
    assert game.state()["game_speed"] == 1.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of stand-ins that the test starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_crash_looks_like_one_and_leaves_no_file(display: str, temporary: Path) -> None:
    process = StandInProcess(StandInOptions(display=display, misbehave=("crash@0.2",)))
    assert process.wait(PATIENCE_S) == -signal.SIGSEGV
    assert not list(temporary.iterdir())
    process.close()


def test_what_keeps_it_from_starting_is_said() -> None:
    with pytest.raises(GameError, match="sulk"):
        StandInProcess(StandInOptions(display=":987", misbehave=("sulk@1",)))


def test_termination_ends_it_cleanly_with_its_settings_written(
    display: str, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("settings") / "games.toml"
    process = StandInProcess(StandInOptions(display=display, at="bonfire", settings=file))
    (settings,) = load_games(file)
    assert (settings.pid, settings.display) == (process.pid, display)
    assert process.state()["player_x"] == 104.0
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert not list(temporary.iterdir())
    process.close()


def test_an_end_that_was_asked_for_is_kept_where_what_the_handler_raised_was_lost() -> None:
    with ended_by_signals() as asked:
        assert not asked.is_set()
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        assert asked.is_set()
