"""How a driver of a real-time game brings it to a start: everything at once, at the clock's highest speed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.episode_start import draw_start
from soulsgraph_envs.games.link import GameSettings

SCENARIO = load_scenario("iudex-phase1")


def speeds(table: FakeTable) -> list[float]:
    return [values["game_speed"] for values in table.link.writes_log if "game_speed" in values]


def seconds(table: FakeTable, seed: int = 1) -> float:
    begun_s = table.time.now_s
    table.reset(seed=seed)
    return table.time.now_s - begun_s


def in_a_move(table: FakeTable, left_s: float) -> float:
    """Play until the boss is in a move that lasts for some time; return how long."""
    moves = {move.id for move in load_boss(SCENARIO.boss).moves}
    for _ in range(600):
        raw = table.step()[0]
        length_s, time_s = raw[Raw.BOSS_ANIMATION_LENGTH_S], raw[Raw.BOSS_ANIMATION_TIME_S]
        if int(raw[Raw.BOSS_ANIMATION]) in moves and length_s - time_s > left_s:
            return float(length_s - time_s)
    raise AssertionError("the boss never attacks")


def test_resets_between_fights_are_hastened_and_others_are_not() -> None:
    table = FakeTable()
    table.reset()
    assert set(speeds(table)) == {1.0}
    table.step()
    table.link.writes_log.clear()
    table.reset(seed=1)
    assert speeds(table) == [1.0, 3.0, 1.0]
    assert table.link.world.speed == 1.0
    table.link.crashed = True
    with pytest.raises(EpisodeLostError):
        table.play(Control.NONE, 5)
    table.link.crashed = False
    table.link.writes_log.clear()
    table.reset(seed=2)
    assert set(speeds(table)) == {1.0}


@pytest.mark.parametrize(
    ("settings", "without"),
    [
        (GameSettings(reset_speed=1.0), frozenset[str]()),
        (GameSettings(speed=3.0), frozenset[str]()),
        (GameSettings(), frozenset({"game_speed"})),
    ],
)
def test_a_clock_that_need_not_or_cannot_be_hastened_is_left(settings: GameSettings, without: frozenset[str]) -> None:
    table = FakeTable(settings, without=without)
    table.link.world.switches["game_speed"] = settings.speed
    for seed in range(3):
        table.reset(seed=seed)
        table.step()
    assert set(speeds(table)) <= {settings.speed}


def test_a_hastened_reset_takes_less_of_the_machines_time() -> None:
    took_s = {}
    for reset_speed in (1.0, 3.0):
        table = FakeTable(GameSettings(reset_speed=reset_speed))
        table.reset()
        in_a_move(table, left_s=1.0)
        took_s[reset_speed] = seconds(table)
    assert took_s[3.0] < 0.5 * took_s[1.0]


def test_a_clock_that_is_not_slowed_down_again_ends_the_fight_and_is_refused() -> None:
    table = FakeTable()
    table.reset()
    write = table.link.write

    def keep_fast(values: Mapping[str, float]) -> None:
        write(values | {"game_speed": 3.0} if "game_speed" in values else values)

    table.link.write = keep_fast  # type: ignore[method-assign]
    table.reset(seed=1)
    with pytest.raises(EpisodeLostError, match="clock does not run at 1 times"):
        table.play(Control.NONE, 20)
    with pytest.raises(GameError, match=r"speed: expected the game's clock at 1 times .* found \d"):
        table.reset(seed=2)


def test_a_clock_that_does_not_follow_is_hastened_no_more(caplog: pytest.LogCaptureFixture) -> None:
    table = FakeTable()
    table.reset()
    write = table.link.write

    def keep_slow(values: Mapping[str, float]) -> None:
        write(values | {"game_speed": 1.0} if "game_speed" in values else values)

    table.link.write = keep_slow  # type: ignore[method-assign]
    begun_s = table.time.now_s
    table.reset(seed=1)
    assert table.time.now_s - begun_s < 5.0
    assert "does not follow reset_speed 3" in caplog.text
    table.step()
    table.link.writes_log.clear()
    table.reset(seed=2)
    assert set(speeds(table)) == {1.0}


def test_a_reset_that_fails_leaves_the_clock_at_the_fights_speed() -> None:
    table = FakeTable()
    table.reset()
    table.step()
    table.link.dropping = True
    with pytest.raises(EpisodeLostError, match="keys do not reach the game"):
        table.reset(seed=1)
    assert table.link.world.speed == 1.0


def test_the_camera_is_tried_and_turned_while_the_boss_ends_its_move() -> None:
    table = FakeTable(GameSettings(reset_speed=1.0))
    table.reset()
    left_s = in_a_move(table, left_s=2.0)
    before = table.game.timing().reset_s
    took_s, after = seconds(table, seed=3), table.game.timing().reset_s
    assert took_s < left_s + 0.5
    assert after["aim"] - before["aim"] < 0.1
    assert after["unlock"] - before["unlock"] < 0.1


def test_the_camera_is_tried_and_turned_while_the_boss_changes_its_phase() -> None:
    table = FakeTable(scenario="iudex-full")
    table.reset(load_scenario("iudex-phase2"), seed=3)
    spent = table.game.timing().reset_s
    assert spent["transition"] > 1.0
    assert spent["aim"] + spent["unlock"] < 0.1


def spent_on_reset(table: FakeTable, seed: int) -> dict[str, float]:
    """Return the seconds by phase of a reset."""
    before = table.game.timing().reset_s
    table.reset(seed=seed)
    return {phase: spent - before.get(phase, 0.0) for phase, spent in table.game.timing().reset_s.items()}


def test_a_reload_adds_little_to_what_the_game_does_by_itself() -> None:
    table = FakeTable(GameSettings(reset_speed=1.0, reload_after_s=1e-6))
    table.reset()
    for seed in range(1, 4):
        table.step()
        spent = spent_on_reset(table, seed)
        assert spent["reload"] + spent["gate"] > 7.5
        # How far the camera turns is drawn; it is tried while the player wakes.
        assert spent["unlock"] < 0.01
        assert sum(spent.values()) - spent["reload"] - spent["gate"] - spent["aim"] < 0.4


def test_a_gate_that_answers_only_who_looks_at_it_is_passed() -> None:
    table = FakeTable(GameSettings(reload_after_s=1e-6))
    table.reset()
    world, tries = table.link.world, 0
    interact = world._interact
    seen = np.array([0.378, 0.926])

    def look_first() -> None:
        nonlocal tries
        tries += 1
        if np.array([world[Raw.CAMERA_X], world[Raw.CAMERA_Y]]) @ seen > 0.95:
            interact()

    world._interact = look_first  # type: ignore[method-assign]
    for seed in range(1, 4):
        table.step()
        spent_on_reset(table, seed)
        assert world.fighting
    assert tries > 3


def test_keys_that_reach_nobody_after_a_reload_end_the_reset() -> None:
    table = FakeTable(GameSettings(reload_after_s=1e-6))
    table.reset()
    table.step()
    table.link.dropping = True
    with pytest.raises(GameError, match="the camera turned by its keys"):
        table.reset(seed=1)


def test_a_place_that_the_game_overwrites_is_written_again() -> None:
    table = FakeTable()
    table.reset()
    write, undone = table.link.write, 0

    def write_in_vain(values: Mapping[str, float]) -> None:
        """Show a place at once, and undo it soon after."""
        nonlocal undone
        write(values)
        if "boss_x" in values and undone < 2:
            undone += 1
            play = table.link.play

            def undo() -> None:
                if table.time.now_s > done_s + 0.05:
                    table.link.play = play  # type: ignore[method-assign]
                    table.link.world.write({"boss_x": 141.0, "boss_y": 592.0})
                play()

            done_s = table.time.now_s
            table.link.play = undo  # type: ignore[method-assign]

    table.link.write = write_in_vain  # type: ignore[method-assign]
    raw, drawn = table.reset(seed=4)[0], draw_start(SCENARIO, derive_seeds(np.array([4]), 1))
    assert undone == 2
    np.testing.assert_allclose(raw[[Raw.BOSS_X, Raw.BOSS_Y]], drawn[[Raw.BOSS_X, Raw.BOSS_Y]], atol=0.2)


def test_the_clock_of_a_short_reset_is_measured_all_the_same() -> None:
    table = FakeTable(GameSettings(speed=3.0), without=frozenset({"game_speed"}))
    table.link.world.switches["game_speed"] = 3.0
    table.reset()
    table.step()
    # In the same place nothing has to be waited for.
    table.reset()
    table.link.world.switches["game_speed"] = 1.5
    with pytest.raises(GameError, match="speed: expected the game's clock at 3 times"):
        table.reset()
