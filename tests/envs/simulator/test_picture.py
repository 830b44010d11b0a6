"""What a picture of a fight shows, where, in which colour: held against the fight's own values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import cos, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.simulator import move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.scene import between

SCENARIO, BOSS = load_scenario("iudex-full"), load_boss("iudex-phase1")
Y = SCENARIO.arena.centre_m[1]
SIZE = (360, 640)
USE_ITEM = Control.USE_ITEM


def fight(**fields: object) -> Simulator:
    """Open a fight four metres apart in the arena's middle, and play one frame without a key."""
    sim = open_fight(SCENARIO, **{"locked": 1, "boss_y": Y - 4.0, **fields})
    press(sim, Control.NONE)
    return sim


def at_window(title: str, offset: int, **fields: object) -> Simulator:
    """Return a fight whose boss is in a move, frames away from its first window."""
    placed = {"boss_heading": 0.0, "boss_y": Y + 5.0, "locked": 0}
    return fight(move=move_of(BOSS, title), move_frame=opens_at(BOSS, title) + offset, **placed, **fields)


quiet = cache(lambda: fight().scene())


@given(share=st.floats(0.0, 0.999), turned=st.floats(-pi, pi), heading=st.floats(-pi, pi))
def test_between_two_scenes_headings_turn_the_shorter_way(share: float, turned: float, heading: float) -> None:
    first = replace(quiet(), raw=quiet().raw.copy())
    first.raw[Raw.BOSS_ANGLE] = heading
    second = replace(first, raw=first.raw.copy())
    second.raw[Raw.BOSS_ANGLE] = (heading + 0.99 * turned + pi) % (2.0 * pi) - pi
    now = between(first, second, share, 0.1).raw
    assert cos(now[Raw.BOSS_ANGLE] - heading - share * 0.99 * turned) == pytest.approx(1.0)
    assert now[Raw.PLAYER_ANGLE] == pytest.approx(first.raw[Raw.PLAYER_ANGLE])


def test_between_two_scenes_a_window_opens_at_its_frame() -> None:
    sim = at_window("fast sweep", -4)
    first = sim.scene()
    press(sim, Control.NONE, 6)
    second = sim.scene()
    assert not first.areas[0].open
    assert second.areas[0].open
    opened = [between(first, second, frame / 6, 0.1).areas[0].open for frame in range(6)]
    assert opened == [False] * round(60 * first.until_hit_s) + [True] * (6 - round(60 * first.until_hit_s))


def test_a_loss_and_what_a_drink_healed_are_shown_for_a_second() -> None:
    struck = {"boss_y": Y - 2.0, "move": move_of(BOSS, "spin"), "move_frame": opens_at(BOSS, "spin") - 1}
    for fields, control, ticks in ((struck, Control.NONE, 6), ({"boss_y": Y - 9.0, "player_hp": 100.0}, USE_ITEM, 60)):
        sim = open_fight(SCENARIO, **fields)
        hp = sim.values(0)["player_hp"]
        press(sim, control, ticks)
        scene = sim.scene()
        assert scene.player_change.recent
        assert scene.player_change.points == scene.raw[Raw.PLAYER_HP] - hp != 0.0
        assert not scene.boss_change.recent
        press(sim, Control.NONE, 60)
        assert not sim.scene().player_change.recent


def test_the_ends_of_a_fight_are_written_across_it_but_not_in_a_training_scenario() -> None:
    for values, banner in (({"player_hp": 0.0}, "YOU DIED"), ({"boss_hp": 0.0}, "VICTORY"), ({}, "")):
        sim = fight()
        sim.override(0, **values)
        assert sim.scene().banner == banner
    ground = Simulator(1)
    ground.reset(np.zeros(1, np.int64), replace(SCENARIO, refill=True), np.zeros(1, np.uint64))
    ground.override(0, player_hp=0.0)
    assert ground.scene().banner == ""
