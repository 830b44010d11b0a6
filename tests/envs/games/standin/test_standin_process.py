"""The stand-in as a program: attached from outside, played by real key events, ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.stand_in import StandInProcess
from fakes.waiting import PATIENCE_S
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.memory_link import attach_game
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.games.standin.program import ended_by_signals


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
