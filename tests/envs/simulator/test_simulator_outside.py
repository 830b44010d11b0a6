"""What another program may set in a fight between ticks, and what it may read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fakes.simulator import open_fight, press
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.driver import TARGETS, AnimationNames
from soulsgraph_envs.simulator.layout import frames

SCENARIO, BOSS, PLAYER = load_scenario("iudex-full"), load_boss("iudex-phase1"), load_player("knight-full")
X, Y = SCENARIO.arena.centre_m


def move(title: str) -> int:
    return [m.title for m in BOSS.moves].index(title)


def values(sim: Simulator, lane: int = 0) -> dict[str, Any]:
    return sim.values(lane)


class TestOverride:
    def test_what_is_set_is_shown_at_once_and_played_on_from(self) -> None:
        sim = open_fight(SCENARIO, lanes=2)
        before = press(sim, Control.NONE)[0].copy()
        written = {"player_x": X + 3.0, "player_y": Y + 2.0, "player_hp": 200.0, "stamina": 40.0, "flasks": 2}
        sim.override(1, **written, boss_x=X - 3.0, boss_heading=1.0, boss_hp=800.0, no_move=1)
        after = press(sim, Control.NONE)[0]
        shown = [Raw.PLAYER_X, Raw.PLAYER_Y, Raw.PLAYER_HP, Raw.FLASKS, Raw.BOSS_X, Raw.BOSS_HP]
        assert after[1, shown].tolist() == [X + 3.0, Y + 2.0, 200.0, 2.0, X - 3.0, 800.0]
        assert after[1, Raw.STAMINA] == pytest.approx(41.0)  # one frame's return
        assert (after[0, shown] == before[0, shown]).all()

    def test_levels_are_held_within_their_bounds(self) -> None:
        sim = open_fight(SCENARIO)
        sim.override(0, player_hp=9999.0, boss_hp=-5.0, stamina=1e6, flasks=-1.0, boss_heading=9.0)
        now = values(sim)
        assert (now["player_hp"], now["boss_hp"], now["stamina"], now["flasks"]) == (454.0, 0.0, 95.0, 0)
        assert now["boss_heading"] == pytest.approx(np.pi)

    def test_places_beyond_the_arena_end_at_its_edge(self) -> None:
        sim = open_fight(SCENARIO)
        sim.override(0, player_x=X + 500.0)
        raw = press(sim, Control.NONE)[0, 0]
        assert raw[Raw.PLAYER_X] == pytest.approx(X + SCENARIO.arena.radius_m - 0.4)

    def test_a_boss_without_attacks_begins_no_move_until_released(self) -> None:
        sim = open_fight(SCENARIO, lanes=2, wait=0, boss_y=Y - 3.2)
        sim.override(0, no_attack=1)
        shown = press(sim, Control.NONE, 600)[:, :, Raw.BOSS_ANIMATION]
        moves = [m.id for m in BOSS.moves]
        assert not np.isin(shown[:, 0], moves).any()
        assert np.isin(shown[:, 1], moves).any()
        sim.override(0, no_attack=0)
        assert np.isin(press(sim, Control.NONE, 120)[:, 0, Raw.BOSS_ANIMATION], moves).any()

    def test_the_wait_of_a_boss_without_attacks_does_not_run_down(self) -> None:
        sim = open_fight(SCENARIO, wait=50, boss_y=Y - 3.2)
        sim.override(0, no_attack=1)
        press(sim, Control.NONE, 200)
        assert values(sim)["wait"] == 50

    def test_without_attacks_not_even_a_counter_from_behind(self) -> None:
        sim = open_fight(SCENARIO, lanes=50, boss_y=Y - 3.0, boss_heading=0.0)
        for lane in range(50):
            sim.override(lane, no_attack=1)
        shown = press(sim, Control.NONE, 60)[:, :, Raw.BOSS_ANIMATION]
        assert not np.isin(shown, [m.id for m in BOSS.moves]).any()

    def test_nobody_leaves_the_spot_or_turns_but_animations_go_on(self) -> None:
        sim = open_fight(SCENARIO, boss_y=Y - 5.0, move=move("thrust"))
        sim.override(0, no_move=1)
        course = press(sim, Control.ROLL | Control.LEFT, 60, Control.LEFT)[:, 0]
        still = [Raw.PLAYER_X, Raw.PLAYER_Y, Raw.BOSS_X, Raw.BOSS_Y, Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]
        assert (course[:, still] == [X, Y, X, Y - 5.0, 0.0, np.pi]).all()
        assert len(set(course[:, Raw.PLAYER_ANIMATION])) > 1
        assert course[30, Raw.BOSS_ANIMATION_TIME_S] > course[0, Raw.BOSS_ANIMATION_TIME_S]

    def test_nobody_loses_hp_but_blows_land(self) -> None:
        struck = frames(BOSS.moves[move("fast sweep")].windows[0].time_s[0] * BOSS.time_factor)
        sim = open_fight(SCENARIO, boss_y=Y - 2.0, move=move("fast sweep"), move_frame=struck - 30)
        sim.override(0, no_damage=1)
        course = press(sim, Control.LIGHT_ATTACK, 60)[:, 0]
        assert (course[:, [Raw.PLAYER_HP, Raw.BOSS_HP]] == [454.0, 1037.0]).all()
        assert PLAYER.animations.stagger.id in course[:, Raw.PLAYER_ANIMATION]

    def test_flags_last_until_the_lanes_next_reset(self) -> None:
        sim = open_fight(SCENARIO)
        sim.override(0, no_attack=1, no_move=1, no_damage=1)
        press(sim, Control.NONE, 5)
        assert [values(sim)[name] for name in ("no_attack", "no_move", "no_damage")] == [1, 1, 1]
        sim.reset(np.arange(1), SCENARIO, np.zeros(1, np.uint64))
        assert [values(sim)[name] for name in ("no_attack", "no_move", "no_damage")] == [0, 0, 0]

    def test_mistakes_are_told(self) -> None:
        sim = open_fight(SCENARIO)
        with pytest.raises(UnknownNameError, match="Did you mean 'player_hp'"):
            sim.override(0, player_hb=1.0)
        with pytest.raises(GameError, match="boss_hp: expected a finite number, found nan"):
            sim.override(0, boss_hp=float("nan"))
        for wrong in (sim.override, sim.animation_names, sim.values, sim.render):
            with pytest.raises(GameError, match="lane that has been reset, below 1; found 1"):
                wrong(1)

    def test_every_value_shown_is_one_of_the_fight(self) -> None:
        assert TARGETS.keys() <= values(open_fight(SCENARIO)).keys()


class TestOtherGround:
    def test_a_fight_goes_on_in_its_phase_on_other_ground(self) -> None:
        wide = replace(SCENARIO, arena=replace(SCENARIO.arena, radius_m=100.0))
        sim = open_fight(SCENARIO, lanes=2, boss_hp=500.0)
        press(sim, Control.NONE, 241)
        assert sim.phases().tolist() == [2, 2]
        sim.override(0, player_x=X + 50.0)
        sim.override(1, player_x=X + 50.0)
        sim.play_on(1, wide)
        raw = press(sim, Control.NONE)[0]
        assert sim.phases().tolist() == [2, 2]
        assert raw[0, Raw.PLAYER_X] < X + 14.0
        assert raw[1, Raw.PLAYER_X] == X + 50.0

    def test_a_fight_with_another_boss_is_refused(self) -> None:
        sim = open_fight(SCENARIO)
        with pytest.raises(GameError, match="margit: expected a phase of iudex-phase1"):
            sim.play_on(0, load_scenario("margit"))


class TestNames:
    def test_animations_are_called_as_in_the_game(self) -> None:
        sim = open_fight(SCENARIO)
        press(sim, Control.ROLL | Control.LEFT)
        assert sim.animation_names(0) == AnimationNames("RollingMedium", "WalkFrontBattle", -1)
        sim = open_fight(SCENARIO, move=move("fast sweep"))
        press(sim, Control.NONE)
        assert sim.animation_names(0) == AnimationNames("Idle", "Attack3005", 3005)

    def test_phase_is_0_in_a_lane_never_reset(self) -> None:
        sim = Simulator(2)
        sim.reset(np.array([1]), load_scenario("iudex-phase2"), np.zeros(1, np.uint64))
        assert sim.phases().tolist() == [0, 2]


class TestPicture:
    def fight(self, **fields: object) -> Simulator:
        return open_fight(SCENARIO, **{"locked": 1, **fields})

    def test_it_has_the_asked_size_and_is_the_same_each_time(self) -> None:
        sim = self.fight()
        for size in ((90, 160), (36, 36), (128, 128)):
            picture = sim.render(0, size)
            assert (picture.shape, picture.dtype) == ((*size, 3), np.uint8)
            assert (picture == sim.render(0, size)).all()
        assert sim.capabilities.can_render

    def test_it_changes_with_what_the_fight_changes(self) -> None:
        pictures = [self.fight().render()]
        changes: tuple[dict[str, object], ...] = (
            *({"player_hp": 200.0}, {"stamina": 10.0}, {"boss_hp": 700.0}, {"flasks": 0}),
            *({"boss_y": Y - 8.0}, {"boss_heading": 0.0}, {"player_heading": 1.0}, {"locked": 0}),
            *({"animation": 2, "animation_frame": 20}, {"move": 3, "move_frame": 30}, {"camera_yaw": 1.0}),
        )
        for fields in changes:
            sim = self.fight(**fields)
            press(sim, Control.NONE)
            pictures.append(sim.render())
        assert len({picture.tobytes() for picture in pictures}) == len(pictures)

    def test_only_an_open_window_is_drawn(self) -> None:
        window = BOSS.moves[move("spin")].windows[0]
        first = frames(window.time_s[0] * BOSS.time_factor)
        red = []
        for frame in (first - 2, first):
            sim = self.fight(boss_y=Y - 4.0, move=move("spin"), move_frame=frame)
            press(sim, Control.NONE)
            picture = sim.render().astype(int)
            red.append(((picture[..., 0] > 140) & (picture[..., 1] < 90)).sum())
        metres_high = 11.0
        area = np.pi * window.reach_m**2 * (90 / metres_high) ** 2
        assert red[1] - red[0] == pytest.approx(area, rel=0.15)

    def test_the_camera_looks_up_the_picture(self) -> None:
        # A boss to the right of where the camera looks is drawn right of the player, whatever the yaw.
        for yaw in (-2.0, 0.0, 1.3):
            aside = yaw + np.pi / 2
            sim = self.fight(locked=0, camera_yaw=yaw, boss_x=X - 6 * np.sin(aside), boss_y=Y - 6 * np.cos(aside))
            press(sim, Control.NONE)
            picture = sim.render(0, (90, 160)).astype(int)
            player = np.argwhere((picture == (70, 130, 220)).all(-1)).mean(0)
            boss = np.argwhere((picture == (150, 70, 60)).all(-1)).mean(0)
            assert boss[1] - player[1] == pytest.approx(6 * 90 / 13.0, abs=2.0)
            assert boss[0] - player[0] == pytest.approx(0.0, abs=2.0)


def test_one_frame_ticks_are_the_fight_of_longer_ones() -> None:
    seeds = derive_seeds(np.arange(3), 1)
    held = np.full(3, int(Control.FORWARD), np.uint32)
    short, long = Simulator(3, 1 / 60), Simulator(3, 0.1)
    for sim in (short, long):
        sim.reset(np.arange(3), SCENARIO, seeds)
    for _ in range(200):
        rows = [short.step(held).copy() for _ in range(6)][-1]
        assert (rows == long.step(held)).all()
