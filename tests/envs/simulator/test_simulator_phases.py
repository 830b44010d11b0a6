"""A whole fight: below a share of its HP the boss is transformed, then fights as its next phase."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fakes.simulator import open_fight, press
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import frames
from soulsgraph_envs.testing import check_game

FULL = load_scenario("iudex-full")
FIRST = load_boss("iudex-phase1")
assert FULL.transition is not None
TRANSITION = FULL.transition.animation


def transformed(sim: Simulator, lane: int = 0) -> bool:
    return sim.animation_names(lane).boss == TRANSITION.name


def test_phases_are_the_fight_of_each_boss_on_one_ground() -> None:
    first, second = FULL.phases()
    assert first == FULL
    assert (second.boss, second.transition) == ("iudex-phase2", None)
    assert (second.arena, second.player, second.flasks, second.boss_hp) == (
        *(FULL.arena, FULL.player, FULL.flasks, FULL.boss_hp),
    )
    plain = load_scenario("iudex-phase1")
    assert plain.phases() == (plain,)


@pytest.mark.parametrize(("hp", "changes"), [(570.0, True), (571.0, False)])
def test_transition_begins_at_the_published_share_of_hp_once_a_move_is_over(hp: float, changes: bool) -> None:
    sim = open_fight(FULL, boss_hp=hp)
    press(sim, Control.NONE)
    assert transformed(sim) == changes
    sim = open_fight(FULL, boss_hp=hp, move=0)
    press(sim, Control.NONE, frames(FIRST.moves[0].length_s * FIRST.time_factor))
    assert not transformed(sim)
    press(sim, Control.NONE)
    assert transformed(sim) == changes


def test_lanes_change_phase_each_on_its_own_and_a_reset_begins_with_the_first() -> None:
    sim = Simulator(3)
    sim.reset(np.arange(3), FULL, derive_seeds(np.arange(3), 1))
    sim.override(1, boss_hp=400.0)
    for _ in range(100):
        sim.step(np.zeros(3, np.uint32))
    assert sim.phases().tolist() == [1, 2, 1]
    sim.reset(np.array([1]), FULL, np.zeros(1, np.uint64))
    assert sim.phases().tolist() == [1, 1, 1]


def test_simulator_keeps_the_game_contract_in_a_whole_fight() -> None:
    check_game(Simulator, replace(FULL, boss_hp=(580.0, 0.5)))
