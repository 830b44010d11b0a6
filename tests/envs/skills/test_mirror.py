"""The mirrored fight: the reflection is its own inverse, and the simulator is symmetric."""

from dataclasses import replace

import numpy as np
import pytest

from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import episode_seeds
from soulsgraph_envs.core.state import Column, Control, state_rows
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import END_TO_END, Mirror, make_skill
from soulsgraph_envs.skills.skill import mirrored_controls

SCENARIO = load_scenario("iudex-phase1")


def test_left_and_right_change_places_and_nothing_else() -> None:
    movement = make_skill("movement")
    names = [action.name for action in movement.actions]
    counterparts = {name: names[i] for name, i in zip(names, Mirror.of(movement, SCENARIO).actions, strict=True)}
    assert counterparts["left"] == "right"
    assert counterparts["back_right"] == "back_left"
    assert counterparts["forward"] == "forward"
    assert mirrored_controls(Control.LEFT | Control.RIGHT) == Control.LEFT | Control.RIGHT
    mirror = Mirror.of(make_skill(END_TO_END), SCENARIO)
    turned = {column.name for column, sign in zip(Column, mirror.sign, strict=True) if sign < 0}
    assert turned == {"BOSS_ANGLE", "PLAYER_ANGLE", "DIRECTION_X", "CAMERA_X", "PLAYER_X", "BOSS_X"}


def test_places_are_reflected_about_the_arenas_centre() -> None:
    movement, rows = make_skill("movement"), np.zeros((1, 25), np.float32)
    rows[0, Column.PLAYER_X], rows[0, Column.PLAYER_Y] = 145.0, 590.0
    assert SCENARIO.arena.centre_m[0] == 142.0
    reflected = Mirror.of(movement, SCENARIO).observations(movement.observation(rows, SCENARIO))
    assert reflected[0, :2].tolist() == [139.0, 590.0]


_REFLECTED = ("player_x", "boss_x", "player_heading", "boss_heading", "camera_yaw", "roll_x", "push_x", "leap_x")


def _reflect(sim: Simulator) -> None:
    """Set the second half of the lanes to the mirrored first half."""
    state, half = sim.get_state(), sim.lanes // 2
    state["streams"][half:] = state["streams"][:half]
    for name, values in state["fights"].items():
        values[half:] = -values[:half] if name in _REFLECTED else values[:half]
    sim.set_state(state)


@pytest.mark.parametrize("scenario_name", ["iudex-phase1", "iudex-phase2", "vordt"])
def test_a_mirrored_fight_with_mirrored_controls_stays_the_mirrored_fight(scenario_name: str) -> None:
    shipped, lanes, skill = load_scenario(scenario_name), 64, make_skill(END_TO_END)
    scenario = replace(shipped, arena=replace(shipped.arena, centre_m=(0.0, 0.0)))  # where a change of sign is exact
    mirror, actions, sim = Mirror.of(skill, scenario), skill.actions, Simulator(2 * lanes)
    sim.reset(np.arange(2 * lanes), scenario, episode_seeds(7, np.arange(2 * lanes), 0))
    random, alike = np.random.default_rng(0), []
    for _ in range(200):
        _reflect(sim)
        chosen = random.integers(0, len(actions), lanes)
        both = np.concatenate([chosen, mirror.actions[chosen]])
        controls = [int(actions[i].holds | actions[i].presses) for i in both]
        observations = skill.observation(state_rows(sim.step(np.array(controls, np.uint32))), scenario)
        difference = abs(observations[lanes:] - mirror.observations(observations[:lanes]))
        angles = [Column.PLAYER_ANGLE, Column.BOSS_ANGLE]
        difference[:, angles] = np.minimum(difference[:, angles], 2 * np.pi - difference[:, angles])
        alike.append((difference < 1e-4).all(axis=1))
    # Bodies in contact are apart by the sum of their radii, and the last bit decides whether the boss pushes on.
    assert np.mean(alike) > 0.999
    assert observations[:, Column.PLAYER_HP].min() < 0.5
