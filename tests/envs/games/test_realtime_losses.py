"""How a driver of a real-time game loses episodes and recovers its game, on a clock that the test controls."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.realtime import FakeTable
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, GameError
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.link import GameSettings, RefusedError


def lose(table: FakeTable, control: Control = Control.NONE, ticks: int = 40) -> EpisodeLostError:
    with pytest.raises(EpisodeLostError) as lost:
        table.play(control, ticks)
    assert table.link.keys.down == set()
    return lost.value


@pytest.mark.parametrize(
    ("stray", "reason"),
    [
        ({"player_x": float("nan")}, "player_x"),
        ({"player_x": 300.0}, "outside"),
        ({"boss_hp": 5000.0}, "boss_hp"),
        ({"camera_x": 0.0, "camera_y": 0.0, "camera_z": 0.0}, "unit vector"),
        ({"player_x": 120.0}, "away from"),
    ],
)
def test_implausible_values_end_the_episode(table: FakeTable, stray: dict[str, float], reason: str) -> None:
    table.link.stray.update(stray)
    assert reason in lose(table, Control.FORWARD).reason
    table.link.stray.clear()
    table.reset()


@pytest.mark.parametrize(("how", "speed"), [("hung", 1.0), ("frozen", 3.0)])
def test_values_that_stand_still_end_the_episode_and_the_game_is_waited_for(how: str, speed: float) -> None:
    table = FakeTable(GameSettings(speed=speed))
    table.reset()
    table.step(Control.FORWARD)
    setattr(table.link, how, True)
    lost = lose(table, Control.FORWARD)
    assert lost.doubtful_ticks >= 1
    begun_s = table.time.now_s
    with pytest.raises(GameError, match="values"):
        table.reset()
    assert table.time.now_s - begun_s < 10.0
    setattr(table.link, how, False)
    table.reset()


@pytest.mark.parametrize(("after_s", "speed"), [(0.0, 1.0), (0.4, 3.0), (2.0, 1.0)])
@pytest.mark.parametrize("how", ["hung", "frozen", "dropping", "crashed"])
def test_misbehaviour_during_a_reset_ends_in_an_error_in_time(how: str, after_s: float, speed: float) -> None:
    table = FakeTable(GameSettings(speed=speed), at_bonfire=True)
    begin_s = after_s / speed
    play: Callable[[], None] = table.link.play

    def play_until() -> None:
        if table.time.now_s >= begin_s:
            setattr(table.link, how, True)
        play()

    table.link.play = play_until  # type: ignore[method-assign]
    with pytest.raises(GameError):
        table.reset()
    assert table.time.now_s - begin_s < 10.0
    assert table.link.keys.down == set()
    table.link.play = play  # type: ignore[method-assign]
    setattr(table.link, how, False)
    table.reset()


def test_a_late_frame_is_no_frozen_game(table: FakeTable) -> None:
    table.link.hung = True
    resume_s = table.time.now_s + 0.25
    play: Callable[[], None] = table.link.play

    def play_late() -> None:
        table.link.hung = table.time.now_s < resume_s
        play()

    table.link.play = play_late  # type: ignore[method-assign]
    table.step()


def test_crashed_game_is_lost_and_launched_again_where_the_settings_say_how(table: FakeTable) -> None:
    table.link.crashed = True
    lose(table, Control.FORWARD)
    begun_s = table.time.now_s
    with pytest.raises(GameError, match="launch"):
        table.reset()
    assert table.time.now_s - begun_s < 10.0
    table = FakeTable(GameSettings(launch=("true",)))
    table.reset()
    table.link.crashed = True
    lose(table)
    table.link.restarts_after = 1
    table.reset()
    assert table.link.world.inside


@pytest.mark.skipif(sys.platform != "linux", reason="looks at a process's files as Linux shows them")
def test_a_launched_game_holds_no_output_of_this_program(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    look = "import os, sys; open(sys.argv[1], 'w').write(' '.join(os.readlink(f'/proc/self/fd/{n}') for n in (1, 2)))"
    table = FakeTable(GameSettings(launch=(sys.executable, "-c", look, str(outputs))))
    table.reset()
    table.link.crashed = True
    lose(table)
    table.link.restarts_after = 1
    table.reset()
    until(lambda: outputs.exists() and outputs.read_text().split() == ["/dev/null"] * 2, "both outputs")


def test_game_that_hangs_for_good_is_ended_and_launched_again() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        table = FakeTable(GameSettings(launch=("true",), pid=process.pid))
        table.reset()
        table.step(Control.FORWARD)
        table.link.hung = True
        lose(table, Control.FORWARD)
        attach = table.link.attach

        def attach_new(timeout_s: float, process_id: int = 0) -> None:
            table.link.hung &= process_id == 0
            attach(timeout_s, process_id)

        table.link.attach = attach_new  # type: ignore[method-assign]
        table.reset()
        assert process.wait(PATIENCE_S) == -9


@pytest.mark.parametrize("command", ["/no/such/game", "false"])
def test_launch_command_that_fails_is_given_up_at_once_by_its_name(command: str) -> None:
    table = FakeTable(GameSettings(launch=(command,)))
    table.link.crashed = True
    attach = table.link.attach

    def attach_late(timeout_s: float, process_id: int = 0) -> None:
        time.sleep(0.1)  # The command is a real one, whatever the test's clock says.
        attach(timeout_s, process_id)

    table.link.attach = attach_late  # type: ignore[method-assign]
    with pytest.raises(GameError, match=command):
        table.reset()
    assert table.time.now_s < 10.0


def test_game_that_is_refused_is_not_launched_again(tmp_path: Path) -> None:
    table = FakeTable(GameSettings(launch=("touch", str(tmp_path / "launched"))))

    def refuse(timeout_s: float, process_id: int = 0) -> None:
        raise RefusedError("two games")

    table.link.attach = refuse  # type: ignore[method-assign]
    with pytest.raises(GameError, match="two games"):
        table.reset()
    assert list(tmp_path.iterdir()) == []


def test_loading_screen_ends_the_episode_and_is_waited_for(table: FakeTable) -> None:
    table.link.world.write({"no_death": 0.0, "player_hp": 0.0})
    lose(table, ticks=100)
    table.reset()
    assert (table.link.world.loads, table.link.world.inside) == (1, True)


def test_lost_window_ends_the_episode_and_is_brought_back(table: FakeTable) -> None:
    table.link.unfocused = True
    assert "window" in lose(table).reason
    table.reset()
    assert not table.link.unfocused


@pytest.mark.parametrize("control", [Control.FORWARD, Control.ROLL | Control.BACK, Control.CAMERA_LEFT])
def test_keys_without_effect_end_the_episode(table: FakeTable, control: Control) -> None:
    for _ in range(15):
        table.step(Control.CAMERA_RIGHT)
    table.link.dropping = True
    lost = lose(table, control, ticks=30)
    assert "keys" in lost.reason
    assert 3 <= lost.doubtful_ticks <= MOST_DOUBTFUL_TICKS
    with pytest.raises(GameError, match="keys"):
        table.reset()
    table.link.dropping = False
    table.reset()


def test_keys_lost_at_the_very_end_put_the_last_episode_in_doubt(table: FakeTable) -> None:
    for _ in range(5):
        table.step(Control.CAMERA_RIGHT)
    table.link.dropping = True
    for _ in range(3):
        table.step()
    with pytest.raises(EpisodeLostError) as lost:
        table.reset()
    assert lost.value.doubtful_ticks >= 3
    table.link.dropping = False
    table.reset()


def test_an_unobserved_stretch_of_the_fight_ends_the_episode(table: FakeTable) -> None:
    table.time.pass_by(2.0)
    lose(table)
