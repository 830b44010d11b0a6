"""Fights of the floor: in ticks as uneven as a game's, with controls as late, by the players of the recorded ones."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fakes.drawn_fights import drawn_fight
from soulsgraph.calibrate.comparison import WITHIN, compare
from soulsgraph.calibrate.floor import UnevenSimulator, floor_fights
from soulsgraph.calibrate.replay import RowReplay
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import PlayerPose

SHIPPED = "iudex-phase1"
_LANE, _SEED = np.zeros(1, np.int64), np.array([7], np.uint64)


def _controls(ticks):
    draw = np.random.default_rng(1)
    ways = (
        Control.FORWARD,
        Control.LEFT | Control.BACK,
        Control.ROLL | Control.RIGHT,
        Control.LIGHT_ATTACK,
        Control.LOCK_ON,
    )
    return [np.array([ways[draw.integers(len(ways))]], np.uint32) for _ in range(ticks)]


def test_even_ticks_without_delay_are_those_of_the_simulator_bit_for_bit():
    scenario = load_scenario(SHIPPED)
    even, plain = UnevenSimulator(0.1, np.array([6]), np.array([0])), Simulator(1)
    assert_array_equal(even.reset(_LANE, scenario, _SEED), plain.reset(_LANE, scenario, _SEED))
    for controls in _controls(200):
        assert_array_equal(even.step(controls), plain.step(controls))
    assert even.clocks[7] == list(range(0, 1201, 6))
    assert even.tick_s == 0.1


def test_ticks_are_as_long_as_those_drawn_from_and_the_same_for_the_same_seed():
    scenario, rows = load_scenario(SHIPPED), []
    for _ in range(2):
        game = UnevenSimulator(0.1, np.array([3, 4, 11]), np.array([0, 2, 9]))
        game.reset(_LANE, scenario, _SEED)
        rows.append([game.step(controls)[0].copy() for controls in _controls(60)])
        assert set(np.diff(game.clocks[7])) == {3, 4, 11}
    assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("delay", [0, 2])
def test_controls_that_arrive_late_are_replayed_late(delay):
    fight, _ = drawn_fight(3, 400, delay=delay, frames=(4, 9))
    replay = RowReplay([fight], load_scenario(SHIPPED))
    assert replay.delay == delay
    span = compare([fight], load_scenario(SHIPPED)).spans[WITHIN, 0.1]
    top = span.summary("player_place")["p90"]
    assert top < 0.05


def test_the_floor_of_uneven_fights_is_as_uneven_and_that_of_even_ones_is_not():
    scenario = load_scenario(SHIPPED)
    uneven, _ = drawn_fight(3, 200, frames=(3, 9))
    uneven = replace(uneven, header=replace(uneven.header, player="oracle"))
    floor, players = floor_fights(["no agent of the zoo"], scenario, SHIPPED, [uneven, uneven], 5)
    assert players == "oracle"
    assert len(floor) == 2
    for fight in floor:
        assert {3, 9} <= set(np.diff(fight.frames)) <= set(range(3, 10))
    even, _ = drawn_fight(3, 200)
    (fight,), _ = floor_fights(["no agent of the zoo"], scenario, SHIPPED, [even], 5)
    assert set(np.diff(fight.frames)) == {6}


def test_where_hp_are_filled_up_the_floor_knows_what_blows_cost(tmp_path):
    file = tmp_path / "filled.toml"
    file.write_text(f'based_on = "{SHIPPED}"\nname = "filled"\nrefill = true\n')
    uneven, _ = drawn_fight(3, 60, str(file), frames=(3, 9))
    (fight,), _ = floor_fights(["nobody"], load_scenario(file), str(file), [uneven], 5)
    full = fight.raw[0, Raw.PLAYER_HP]
    assert (fight.raw[:, Raw.PLAYER_HP] == full).all()
    rows = RowReplay([fight], load_scenario(file))
    knocked = rows.began & np.isin(rows.pose, (PlayerPose.STAGGER, PlayerPose.KNOCKDOWN))
    assert knocked.sum() > 3
    assert (rows.lost_hp[knocked] > 10.0).all()
