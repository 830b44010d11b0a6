"""The boss of a simulated fight keeps the rules that its data give; fights start where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fakes.simulator import open_fight, press
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Column, Control, Raw, state_rows
from soulsgraph_envs.simulator import Simulator

SCENARIO = load_scenario("iudex-phase1")
CENTRE = SCENARIO.arena.centre_m


class TestBoss:
    @pytest.mark.parametrize(
        ("scenario", "boss_hp", "among"),
        [("iudex-phase1", 1037.0, {"rapid slices", "fast sweep"}), ("vordt", 500.0, {"charge", "frost breath"})],
    )
    def test_peeked_hits_come_true(self, scenario: str, boss_hp: float, among: set[str]) -> None:
        fought = load_scenario(scenario)
        sim = open_fight(fought, lanes=96, wait=0, boss_y=CENTRE[1] - 3.0, boss_hp=boss_hp)
        full = press(sim, Control.NONE)[0, :, Raw.PLAYER_HP]
        begins = sim.hits_ahead_s()[:, 0]
        chosen, moves = sim.get_state()["fights"]["move"], load_boss(fought.boss).moves
        assert among <= {moves[number].title for number in chosen[np.isfinite(begins)]}
        hp = press(sim, Control.NONE, 240)[:, :, Raw.PLAYER_HP]
        for lane in np.flatnonzero(np.isfinite(begins)):
            assert np.flatnonzero(hp[:, lane] < full[lane])[0] == round(begins[lane] * 60)


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
