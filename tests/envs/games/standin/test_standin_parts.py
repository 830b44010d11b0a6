"""The stand-in's options, misbehaviours and keyboard, without a window or a game."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import load_games, save_game
from soulsgraph_envs.games.standin.__main__ import app
from soulsgraph_envs.games.standin.launch import StandInOptions, settings_of
from soulsgraph_envs.games.standin.program import Misbehaviour, Schedule, parse_misbehaviour


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("crash@5", Misbehaviour("crash", 5.0)),
        ("freeze@1.5+3", Misbehaviour("freeze", 1.5, 3.0)),
        ("hang@0", Misbehaviour("hang", 0.0, inf)),
    ],
)
def test_misbehaviour_is_read(text: str, meant: Misbehaviour) -> None:
    assert parse_misbehaviour(text) == meant


def test_schedule_begins_each_once_and_ends_what_lasts() -> None:
    now = 100.0
    schedule = Schedule([parse_misbehaviour(text) for text in ("freeze@2+3", "move@1")], lambda: now)
    assert schedule.due() == []
    now = 101.5
    assert [one.kind for one in schedule.due()] == ["move"]
    now = 102.0
    assert [one.kind for one in schedule.due()] == ["freeze"]
    assert schedule.due() == []
    assert schedule.on("freeze")
    assert not schedule.on("drop")
    now = 105.0
    assert not schedule.on("freeze")
    schedule.add("drop")
    assert [one.kind for one in schedule.due()] == ["drop"]
    now = 1e9
    assert schedule.on("drop")


def _parsed(words: list[str]) -> StandInOptions:
    _, bound, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    options: StandInOptions = bound.kwargs["options"]
    return options


def test_arguments_mean_the_options_they_are_made_of(tmp_path: Path) -> None:
    options = StandInOptions(
        map="stand-in",
        at="bonfire",
        speed=2.5,
        settings=tmp_path / "games.toml",
        misbehave=("crash@5", "freeze@1+2"),
        until_eof=True,
    )
    assert _parsed(options.arguments()) == options
    assert StandInOptions().arguments() == []


@pytest.mark.parametrize("text", ["sulk@5", "freeze", "freeze@x", "freeze@1+y", "freeze@-1", "crash@5+3", "hang@inf"])
def test_misbehaviour_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(SoulsGraphError, match=text.partition("@")[0]):
        parse_misbehaviour(text)


@pytest.mark.parametrize("numbers", [{"speed": 0.0}, {"speed": 4.0}, {"seconds": -1.0}])
def test_numbers_out_of_range_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(SoulsGraphError, match=next(iter(numbers))):
        StandInOptions(**numbers)  # type: ignore[arg-type]


def test_settings_are_a_games_file_whose_launch_starts_a_well_behaved_stand_in_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "games.toml"
    options = StandInOptions(map="stand-in", scenario="mine.toml", speed=3.0, settings=file, misbehave=("crash@5",))
    save_game(file, settings_of(options, "SOULS STAND-IN"))
    (game,) = load_games(file)
    assert (game.map, game.window, game.speed) == ("stand-in", "SOULS STAND-IN", 3.0)
    assert game.launch[1:4] == ("-P", "-m", "soulsgraph_envs.games.standin")
    again = _parsed(list(game.launch[4:]))
    assert again == replace(options, display=":7", scenario=str(tmp_path / "mine.toml"), misbehave=())
    assert list(tmp_path.iterdir()) == [file]
