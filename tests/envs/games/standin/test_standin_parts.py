"""The stand-in's options, without a window or a game."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import load_games, save_game
from soulsgraph_envs.games.standin.__main__ import app
from soulsgraph_envs.games.standin.launch import StandInOptions, settings_of


def _parsed(command: list[str]) -> StandInOptions:
    _, bound, *_ = app.parse_args(command[4:], exit_on_error=False, print_error=False)
    options: StandInOptions = bound.kwargs["options"]
    return options


@pytest.mark.parametrize("speed", [0.0, 4.0])
def test_a_speed_out_of_range_is_refused(speed: float) -> None:
    with pytest.raises(SoulsGraphError, match="speed"):
        StandInOptions(speed=speed)


def test_settings_are_a_games_file_whose_launch_starts_the_stand_in_again_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "games.toml"
    options = StandInOptions(scenario="mine.toml", speed=3.0, settings=Path("games.toml"), until_eof=True)
    save_game(file, settings_of(options, "stand-in", "SOULS STAND-IN"))
    (game,) = load_games(file)
    assert (game.map, game.window, game.speed) == ("stand-in", "SOULS STAND-IN", 3.0)
    again = replace(options, display=":7", scenario=str(tmp_path / "mine.toml"), settings=file, until_eof=False)
    assert _parsed(list(game.launch)) == again
    assert list(tmp_path.iterdir()) == [file]
