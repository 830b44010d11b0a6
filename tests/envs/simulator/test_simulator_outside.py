"""What another program may set in a fight between ticks, what it may read, and what a caller may not do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fakes.simulator import move_of, open_fight, opens_at, press
from soulsgraph_envs.core.errors import GameError, SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.driver import AnimationNames

SCENARIO, BOSS, PLAYER = load_scenario("iudex-full"), load_boss("iudex-phase1"), load_player("knight-full")
X, Y = SCENARIO.arena.centre_m
move = partial(move_of, BOSS)


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

    def test_levels_are_held_within_their_bounds_and_places_in_the_arena(self) -> None:
        sim = open_fight(SCENARIO)
        sim.override(0, player_hp=9999.0, boss_hp=-5.0, stamina=1e6, flasks=-1.0, boss_heading=9.0, player_x=X + 500.0)
        now = sim.values(0)
        assert (now["player_hp"], now["boss_hp"], now["stamina"], now["flasks"]) == (454.0, 0.0, 95.0, 0)
        assert now["boss_heading"] == pytest.approx(np.pi)
        raw = press(sim, Control.NONE)[0, 0]
        assert raw[Raw.PLAYER_X] == pytest.approx(X + SCENARIO.arena.radius_m - 0.4)

    def test_a_boss_without_attacks_begins_no_move_until_released_and_its_wait_stands_still(self) -> None:
        behind = np.array([np.pi, np.pi, 0.0])  # The last one has the player behind it.
        sim = open_fight(SCENARIO, lanes=3, wait=50, boss_y=Y - 3.2, boss_heading=behind)
        for lane in (0, 2):
            sim.override(lane, no_attack=1)
        moves = [m.id for m in BOSS.moves]
        attacks = np.isin(press(sim, Control.NONE, 600)[:, :, Raw.BOSS_ANIMATION], moves).any(axis=0)
        assert attacks.tolist() == [False, True, False]
        assert sim.values(0)["wait"] == 50
        sim.override(0, no_attack=0)
        assert np.isin(press(sim, Control.NONE, 120)[:, 0, Raw.BOSS_ANIMATION], moves).any()

    def test_nobody_leaves_the_spot_or_turns_but_animations_go_on(self) -> None:
        sim = open_fight(SCENARIO, boss_y=Y - 5.0, move=move("thrust"))
        sim.override(0, no_move=1)
        course = press(sim, Control.ROLL | Control.LEFT, 60, Control.LEFT)[:, 0]
        still = [Raw.PLAYER_X, Raw.PLAYER_Y, Raw.BOSS_X, Raw.BOSS_Y, Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]
        assert (course[:, still] == [X, Y, X, Y - 5.0, 0.0, np.pi]).all()
        assert len(set(course[:, Raw.PLAYER_ANIMATION])) > 1
        assert course[30, Raw.BOSS_ANIMATION_TIME_S] > course[0, Raw.BOSS_ANIMATION_TIME_S]

    def test_nobody_loses_hp_but_blows_land(self) -> None:
        sweep = {"move": move("fast sweep"), "move_frame": opens_at(BOSS, "fast sweep") - 30}
        sim = open_fight(SCENARIO, boss_y=Y - 2.0, **sweep)
        sim.override(0, no_damage=1)
        course = press(sim, Control.LIGHT_ATTACK, 60)[:, 0]
        assert (course[:, [Raw.PLAYER_HP, Raw.BOSS_HP]] == [454.0, 1037.0]).all()
        assert PLAYER.animations.stagger.id in course[:, Raw.PLAYER_ANIMATION]


_TWO, _SEEDS = np.arange(2), np.zeros(2, np.uint64)


@pytest.mark.parametrize(
    ("asks", "error", "named"),
    [
        (lambda _: Simulator(1, tick_s=0.07), GameError, "tick"),
        (lambda _: Simulator(2).step(np.zeros(2, np.uint32)), GameError, "reset"),
        (lambda sim: sim.reset(np.array([2]), SCENARIO, _SEEDS[:1]), GameError, r"\b1\b.*2"),
        (lambda sim: sim.reset(_TWO[:1], SCENARIO, _SEEDS), GameError, "seed"),
        (lambda sim: sim.step(np.zeros(2, np.int64)), GameError, "controls"),
        (lambda sim: sim.step(np.zeros(2, np.uint32), np.ones(3, np.bool_)), GameError, "active"),
        (lambda sim: sim.step(np.array([0, 1 << 17], np.uint32)), GameError, "lane 1"),
        (lambda sim: sim.animation_names(2), GameError, "lane"),
        (lambda sim: sim.play_on(0, load_scenario("margit")), GameError, "margit"),
    ],
)
def test_misuse_is_refused_and_the_fight_goes_on(
    asks: Callable[[Simulator], object], error: type[SoulsGraphError], named: str
) -> None:
    sim, calm = (open_fight(SCENARIO, lanes=2) for _ in range(2))
    with pytest.raises(error, match=named):
        asks(sim)
    assert (press(sim, Control.FORWARD, 3) == press(calm, Control.FORWARD, 3)).all()


def test_a_fight_goes_on_in_its_phase_on_other_ground() -> None:
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


def test_animations_are_called_as_in_the_game() -> None:
    sim = open_fight(SCENARIO)
    press(sim, Control.ROLL | Control.LEFT)
    assert sim.animation_names(0) == AnimationNames("RollingMedium", "WalkFrontBattle", -1)
    sim = open_fight(SCENARIO, move=move("fast sweep"))
    press(sim, Control.NONE)
    assert sim.animation_names(0) == AnimationNames("Idle", "Attack3005", 3005)


def test_one_frame_ticks_are_the_fight_of_longer_ones() -> None:
    seeds = derive_seeds(np.arange(3), 1)
    held = np.full(3, int(Control.FORWARD), np.uint32)
    short, long = Simulator(3, 1 / 60), Simulator(3, 0.1)
    for sim in (short, long):
        sim.reset(np.arange(3), SCENARIO, seeds)
    for _ in range(100):
        rows = [short.step(held).copy() for _ in range(6)][-1]
        assert (rows == long.step(held)).all()
