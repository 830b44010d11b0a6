"""The stand-in's course of events, frame by frame, without a window."""

from __future__ import annotations

import pytest

from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.link import FIELDS
from soulsgraph_envs.games.standin.launch import load_surroundings
from soulsgraph_envs.games.standin.world import ENCOUNTERED, SWORD_PULLED, CourseStage, StandInWorld

GATE = {"player_x": 125.711, "player_y": 558.486, "player_z": -64.05, "player_angle": -2.988}


def open_world(at_bonfire: bool = False, met: bool = True, encounter: str = "iudex") -> StandInWorld:
    surroundings = load_surroundings(encounter)
    return StandInWorld(surroundings, load_scenario(surroundings.scenario), 1, at_bonfire, met)


def play(world: StandInWorld, seconds: float, controls: Control = Control.NONE) -> None:
    for _ in range(round(60 * seconds)):
        world.frame(controls)


def in_arena() -> StandInWorld:
    """Open a fight that neither can end by accident."""
    world = open_world()
    world.write({"no_death": 1.0})
    return world


def show(world: StandInWorld) -> dict[str, float | str]:
    return world.readings()


@pytest.mark.parametrize("encounter", shipped_names("encounter"))
def test_every_field_has_a_value_in_every_encounter(encounter: str) -> None:
    world = open_world(encounter=encounter)
    play(world, 1.0)
    of_the_window = {"window_width", "window_height", "screen_mode"}
    assert set(show(world)) == set(FIELDS) - of_the_window
    assert world.fighting


def test_attacks_are_shown_by_number_also_while_a_blow_overwrites_the_name() -> None:
    world = in_arena()
    shown = set()
    for _ in range(60 * 20):
        world.frame(Control.NONE)
        now = world.readings()
        if now["boss_attack_id"] != -1:
            shown.add((now["boss_animation"], now["boss_attack_id"]))
    assert shown
    assert {name for name, _ in shown} == {f"Attack{number:.0f}" for _, number in shown}
    # A blow of the player's, put in by hand: only its effect on the boss's HP is looked at.
    world.write({"boss_hp": 900.0, "no_move": 1.0})
    world.blended = 10
    assert show(world)["boss_animation"] == "PartBlend_Default"


def test_a_death_leads_through_a_loading_screen_to_the_bonfire_and_the_gate_into_a_fight() -> None:
    world = open_world()
    world.write({"no_death": 1.0, "player_hp": 0.0})
    course = []
    for _ in range(3):
        course.append((world.stage, show(world)["player_animation"], world.loads))
        play(world, 2.1, Control.FORWARD)
    assert course == [
        (CourseStage.DYING, "DeathIdle", 0),
        (CourseStage.LOADING, "", 0),
        (CourseStage.RISING, "Event63000", 1),
    ]
    assert (world.stage, show(world)["player_hp"], world.fighting, world.died) == (
        CourseStage.PLAYING,
        454.0,
        False,
        True,
    )
    assert world.scene().boss.name == "rests"
    goal = world.scene().goal
    assert (goal.x, goal.y) == (GATE["player_x"], GATE["player_y"])
    # Only at the gate does the key lead on.
    world.frame(Control.INTERACT)
    assert world.stage is CourseStage.PLAYING
    world.write(GATE)
    world.frame(Control.INTERACT)
    assert world.stage is CourseStage.PASSING_GATE
    play(world, 2.1)
    assert show(world)["player_x"] == pytest.approx(126.49)
    play(world, 1.0)
    assert (world.inside, world.died, world.scene().goal) == (True, False, None)


def test_a_boss_that_was_never_met_rests_until_its_sword_is_pulled() -> None:
    world = open_world(at_bonfire=True, met=False)
    world.write(GATE)
    play(world, 2.1, Control.INTERACT)
    resting = show(world)
    play(world, 1.0)
    assert (resting["boss_animation"], world.fighting) == ("IdleBattle", False)
    assert (world.goal.x, world.goal.y) == (show(world)["boss_x"], show(world)["boss_y"])
    assert world.goal.x == resting["boss_x"]
    world.write({"player_x": 141.0, "player_y": 589.5})
    world.frame(Control.INTERACT)
    assert world.boss_flags == ENCOUNTERED | SWORD_PULLED
    assert (world.fighting, world.goal) == (True, None)
