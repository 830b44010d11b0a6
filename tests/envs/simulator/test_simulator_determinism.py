"""Same seed and same controls give the same bits, whatever the other lanes do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.testing import play, sample_controls

PHASE_1, PHASE_2, WHOLE = (load_scenario(f"iudex-{part}") for part in ("phase1", "phase2", "full"))


@settings(max_examples=10)
@given(lanes=st.integers(2, 9), seed=st.integers(0, 2**62 - 1), data=st.data())
def test_a_lane_is_the_same_alone_and_among_others(lanes: int, seed: int, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, lanes - 1))
    seeds, controls = derive_seeds(np.arange(lanes), seed), sample_controls(lanes, 150, seed % 1000)
    together = play(Simulator(lanes), PHASE_1, seeds, controls)
    alone = play(Simulator(1), PHASE_1, seeds[lane : lane + 1], controls[:, lane : lane + 1])
    assert together[:, lane].tobytes() == alone[:, 0].tobytes()
    assert len({together[0, lane].tobytes() for lane in range(lanes)}) == lanes


def test_lanes_may_fight_in_different_scenarios_at_once() -> None:
    seeds, controls = derive_seeds(np.arange(4), 1), sample_controls(4, 200)
    mixed = Simulator(4)
    mixed.reset(np.array([0, 2]), PHASE_1, seeds[[0, 2]])
    mixed.reset(np.array([1, 3]), PHASE_2, seeds[[1, 3]])
    course = np.array([mixed.step(tick).copy() for tick in controls])
    first, second = play(Simulator(4), PHASE_1, seeds, controls), play(Simulator(4), PHASE_2, seeds, controls)
    assert (course[:, ::2] == first[1:, ::2]).all()
    assert (course[:, 1::2] == second[1:, 1::2]).all()


@pytest.mark.parametrize("ticks", [3, 60])  # In a change of phase, and after it.
@pytest.mark.parametrize("followed", [False, True])
def test_a_simulator_continues_from_saved_state_or_another_one_bit_for_bit(followed: bool, ticks: int) -> None:
    controls = sample_controls(5, 120)
    sim, other = Simulator(5), Simulator(5)
    scenario = replace(WHOLE, refill=followed, start="scattered")
    sim.reset(np.arange(5), scenario, derive_seeds(np.arange(5), 1))
    sim.override(2, boss_hp=300.0)
    for tick in controls[:ticks]:
        sim.step(tick)
    saved = sim.get_state()
    saved["scenarios"] = json.loads(json.dumps(saved["scenarios"]))
    if followed:
        other.follow(sim)
    course = [sim.step(tick).tobytes() for tick in controls[ticks:]]
    if not followed:
        other.set_state(saved)
    assert [other.step(tick).tobytes() for tick in controls[ticks:]] == course
    assert other.phases().tolist() == sim.phases().tolist()
    again = [game.reset(np.array([1]), scenario, np.array([7], np.uint64)) for game in (sim, other)]
    assert again[0].tobytes() == again[1].tobytes()


def test_standing_lanes_keep_every_bit_and_their_random_stream() -> None:
    seeds, controls = derive_seeds(np.arange(3), 1), sample_controls(3, 100)
    straight = play(Simulator(3), PHASE_1, seeds, controls)
    halting = Simulator(3)
    halting.reset(np.arange(3), PHASE_1, seeds)
    active = np.array([True, False, True])
    for tick in controls:
        halting.step(tick, active)
    course = [halting.step(tick, ~active).copy()[1] for tick in controls]
    assert np.array(course).tobytes() == np.ascontiguousarray(straight[1:, 1]).tobytes()
