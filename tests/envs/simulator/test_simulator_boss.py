"""The boss of a simulated fight keeps the rules that its data give; fights start where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fakes.simulator import FRAME_S, open_fight, press
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Column, Control, Raw, state_rows
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import NO_MOVE, frames

SCENARIO = load_scenario("iudex-phase1")
PLAYER = load_player("knight")
BOSS = load_boss("iudex-phase1")
CENTRE = SCENARIO.arena.centre_m


def fight(lanes: int = 1, tick_s: float = FRAME_S, **fields: object) -> Simulator:
    """Open a fight with the boss 6 m south of the player, both at rest, and `fields` set."""
    return open_fight(SCENARIO, lanes, tick_s, **fields)


def move(title: str) -> int:
    return [m.title for m in BOSS.moves].index(title)


def first_frame(title: str) -> int:
    return frames(BOSS.moves[move(title)].windows[0].time_s[0] * BOSS.time_factor)


class TestBoss:
    def test_boss_keeps_its_halberd_at_work(self) -> None:
        for distance in (8.0, 1.4):
            sim = fight(boss_y=CENTRE[1] - distance)
            raw = press(sim, Control.NONE, 400)[-1, 0]
            gap = np.hypot(raw[Raw.PLAYER_X] - raw[Raw.BOSS_X], raw[Raw.PLAYER_Y] - raw[Raw.BOSS_Y])
            assert BOSS.motion.back_off_within_m - 0.1 <= gap <= BOSS.motion.approach_beyond_m + 0.1

    def test_boss_turns_after_the_player(self) -> None:
        sim = fight(boss_heading=np.pi - 1.0, boss_y=CENTRE[1] - 3.2)  # near enough to stay
        course = press(sim, Control.NONE, 60)[:, 0, Raw.BOSS_ANGLE]
        assert course[0] - (np.pi - 1.0) == pytest.approx(BOSS.motion.turn_rad_s / 60)
        assert abs(course[-1]) == pytest.approx(np.pi, abs=1e-6)

    def test_player_behind_meets_a_counter_or_a_turn(self) -> None:
        sim = fight(lanes=400, boss_y=CENTRE[1] - 2.0, boss_heading=0.0)
        shown = press(sim, Control.NONE)[0, :, Raw.BOSS_ANIMATION]
        counters = (shown == BOSS.moves[move("spin")].id).mean()
        assert ((shown == BOSS.moves[move("spin")].id) | (shown == BOSS.animations.turn.id)).all()
        assert counters == pytest.approx(BOSS.rear.counter_chance, abs=0.1)  # 4 standard errors

    def test_moves_are_chosen_by_distance_and_weight(self) -> None:
        sim = fight(lanes=4000, wait=0)
        shown = press(sim, Control.NONE)[0, :, Raw.BOSS_ANIMATION]
        offered = [m for m in BOSS.moves if m.distance_m[0] <= 6.0 <= m.distance_m[1] and m.weight]
        total = sum(m.weight for m in offered)
        assert set(shown) == {m.id for m in offered}
        for m in offered:
            assert (shown == m.id).mean() == pytest.approx(m.weight / total, abs=0.035)

    def test_move_takes_its_time_and_is_followed_by_a_wait_or_a_chain(self) -> None:
        sim = fight(lanes=400, boss_y=CENTRE[1] - 3.2, move=move("fast sweep"), chain_left=2)
        length = frames(BOSS.moves[move("fast sweep")].length_s * BOSS.time_factor)
        press(sim, Control.NONE, length - 1)
        assert (sim.get_state()["fights"]["move"] == move("fast sweep")).all()
        press(sim, Control.NONE)
        after = sim.get_state()["fights"]
        chained = after["move"] != NO_MOVE
        assert chained.mean() == pytest.approx(BOSS.aggression.chain_chance, abs=0.09)
        waits = after["wait"][~chained]
        assert waits.min() >= 60
        assert waits.max() <= 180

    def test_leap_lands_short_of_the_player_or_against_them(self) -> None:
        title, contact = "leap smash", PLAYER.body.radius_m + BOSS.radius_m
        sim = fight(boss_y=CENTRE[1] - 9.0, move=move(title))
        raw = press(sim, Control.NONE, first_frame(title))[-1, 0]
        assert raw[Raw.PLAYER_Y] - raw[Raw.BOSS_Y] == pytest.approx(max(BOSS.motion.leap_short_m, contact), abs=1e-6)

    def test_peeked_hits_come_true(self) -> None:
        sim = fight(lanes=64, wait=0, boss_y=CENTRE[1] - 3.0)
        press(sim, Control.NONE)
        begins = sim.hits_ahead_s()[:, 0]
        assert np.isfinite(begins).mean() > 0.5
        hp = press(sim, Control.NONE, 240)[:, :, Raw.PLAYER_HP]
        for lane in np.flatnonzero(np.isfinite(begins)):
            first = np.flatnonzero(hp[:, lane] < 454)[0]
            assert first == round(begins[lane] * 60)


class TestStart:
    @pytest.mark.parametrize("start", ["scattered", "mid", "long"])
    def test_starts_lie_in_their_ranges_inside_the_arena(self, start: str) -> None:
        sim = Simulator(500)
        raw = sim.reset(np.arange(500), replace(SCENARIO, start=start), derive_seeds(np.arange(500), 3))
        rows, spec = state_rows(raw), SCENARIO.starts[start]
        low, high = spec.distance_m
        assert ((rows[:, Column.DISTANCE] >= low - 1e-5) & (rows[:, Column.DISTANCE] <= high + 1e-5)).all()
        for x, y in ((Raw.PLAYER_X, Raw.PLAYER_Y), (Raw.BOSS_X, Raw.BOSS_Y)):
            assert (np.hypot(raw[:, x] - CENTRE[0], raw[:, y] - CENTRE[1]) <= 14.0 - 0.4).all()
        angles = rows[:, Column.CAMERA_TARGET_ANGLE]
        assert (angles < 1e-3).all() if spec.facing else angles.max() > 2.0
        assert (rows[:, Column.LOCKED] == 0).all()
        assert (rows[:, Column.PLAYER_HP] == 1).all()

    def test_arena_holds_everybody(self) -> None:
        sim = fight(lanes=8, tick_s=0.1)
        rng = np.random.default_rng(0)
        for _ in range(600):
            raw = sim.step(rng.choice([1, 2, 4, 8, 17, 18, 20, 24], 8).astype(np.uint32))
            assert (np.hypot(raw[:, 0] - CENTRE[0], raw[:, 1] - CENTRE[1]) <= 14.0 - 0.4 + 1e-9).all()
            assert (np.hypot(raw[:, 3] - CENTRE[0], raw[:, 4] - CENTRE[1]) <= 14.0 - 0.9 + 1e-9).all()


class TestErrors:
    def test_misuse_is_told_in_one_line(self) -> None:
        with pytest.raises(GameError, match="at least 1 lane"):
            Simulator(0)
        with pytest.raises(GameError, match="whole frames"):
            Simulator(1, tick_s=0.07)
        sim = Simulator(2)
        with pytest.raises(GameError, match="reset before the first step"):
            sim.step(np.zeros(2, np.uint32))
        with pytest.raises(GameError, match="lanes from 0 to 1"):
            sim.reset(np.array([2]), SCENARIO, np.zeros(1, np.uint64))
        with pytest.raises(GameError, match="one seed a lane"):
            sim.reset(np.array([0]), SCENARIO, np.zeros(2, np.uint64))
        sim.reset(np.arange(2), SCENARIO, np.zeros(2, np.uint64))
        with pytest.raises(GameError, match="uint32 of shape"):
            sim.step(np.zeros(2, np.int64))  # type: ignore[arg-type]
        with pytest.raises(GameError, match="active"):
            sim.step(np.zeros(2, np.uint32), np.ones(3, np.bool_))
        with pytest.raises(GameError, match=r"lane 1: expected bits of FORWARD.*found 0x20000"):
            sim.step(np.array([0, 1 << 17], np.uint32))
