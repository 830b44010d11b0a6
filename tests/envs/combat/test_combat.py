"""The combat loop: decision clocks, ends, and the faces that share it."""

from dataclasses import replace

import numpy as np
import pytest

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

PHASE_1 = load_scenario("iudex-phase1")
SKILLS = tuple(make_skill(name) for name in SKILL_NAMES)
DODGE, HEAL_ATTACK = 3, 4


def make_combat(lanes=1, scenario=PHASE_1, horizon=1024, skills=SKILLS) -> Combat:
    return Combat(make_game(lanes=lanes), skills, scenario, Horizon(skills[-1].name, horizon))


def begin(combat: Combat, seed=0) -> None:
    lanes = np.arange(combat.lanes)
    combat.begin(lanes, derive_seeds(seed, lanes, 0))


def random_actions(combat: Combat, rng: np.random.Generator) -> np.ndarray:
    columns = [rng.integers(0, len(skill.actions), combat.lanes) for skill in combat.skills]
    return np.stack(columns, axis=1)


def idle_in(combat: Combat) -> np.ndarray:
    """Return the action of every lane and skill that does nothing."""
    return np.array([[len(skill.actions) - 1 for skill in combat.skills]]).repeat(combat.lanes, axis=0)


def ticks_until_due(combat: Combat, skill: int, actions: np.ndarray) -> int:
    for tick in range(1, 20):
        combat.step(actions)
        if combat.due[0, skill]:
            return tick
    raise AssertionError("never due")


def wait_for_decision(combat: Combat, skill: int) -> None:
    while not combat.due[0, skill]:
        combat.step(idle_in(combat))


@pytest.mark.parametrize(
    ("skill", "action", "ticks"),
    [(0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 5), (3, 1, 1), (4, 0, 2), (4, 1, 3), (4, 2, 1)],
)
def test_a_decision_occupies_the_ticks_of_appendix_c(skill, action, ticks):
    combat = make_combat()
    begin(combat)
    wait_for_decision(combat, skill)
    actions = idle_in(combat)
    actions[0, skill] = action
    assert ticks_until_due(combat, skill, actions) == ticks


def test_skills_begin_at_random_phases_of_their_clocks():
    combat = make_combat(lanes=200)
    begin(combat)
    assert combat.due[:, :3].all()
    # 200 lanes, five phases each: the chance that one of ten is missing is 10 x 0.8^200, below 1e-18.
    phases = np.zeros((200, 5), int)
    for tick in range(5):
        undecided = combat.latest < 0
        phases[undecided & combat.due] = tick
        combat.step(idle_in(combat))
    assert set(phases[:, DODGE]) == set(phases[:, HEAL_ATTACK]) == set(range(5))


def test_the_state_at_the_start_of_a_decision_is_kept_until_it_ends():
    combat = make_combat()
    begin(combat)
    wait_for_decision(combat, DODGE)
    start = combat.rows[0].copy()
    actions = idle_in(combat)
    actions[0, DODGE] = 0
    ticks_until_due(combat, DODGE, actions)
    decision = combat.finished(DODGE, np.zeros(1, np.int64))
    assert np.array_equal(decision.before[0], start)
    assert np.array_equal(decision.after[0], combat.rows[0])
    assert decision.actions[0] == 0


def test_the_horizon_counts_decisions_of_its_skill_and_truncates():
    combat = make_combat(scenario=replace(PHASE_1, refill=True), horizon=7)
    begin(combat)
    while not combat.ended[0]:
        combat.step(idle_in(combat))
    assert combat.truncated[0]
    assert not combat.terminated[0]
    assert combat.decisions[0, HEAL_ATTACK] == 7
    assert combat.completed[0].all(), "every skill's open decision is cut at the end"


def test_death_below_five_percent_ends_the_episode_unless_hp_is_refilled():
    mortal, practice = make_combat(), make_combat(scenario=replace(PHASE_1, refill=True))
    for combat in (mortal, practice):
        begin(combat)
        for _ in range(1500):
            combat.step(idle_in(combat))
            if combat.terminated[0]:
                break
    assert mortal.died[0]
    assert mortal.rows[0, Column.PLAYER_HP] < 0.05
    assert not practice.terminated[0]


def test_a_death_and_a_win_on_one_tick_is_a_death():
    combat = make_combat()
    begin(combat)
    combat.game.override(0, player_hp=1.0, boss_hp=600.0)
    combat.step(idle_in(combat))
    assert combat.died[0]
    assert not combat.won[0]


def test_lanes_that_are_not_active_stand_still():
    combat = make_combat(lanes=2)
    begin(combat)
    rng = np.random.default_rng(0)
    before = combat.rows[1].copy(), combat.decisions[1].copy(), combat.ticks[1]
    for _ in range(10):
        combat.step(random_actions(combat, rng), np.array([True, False]))
    assert np.array_equal(combat.rows[1], before[0])
    assert np.array_equal(combat.decisions[1], before[1])
    assert combat.ticks.tolist() == [10, before[2]]


def test_saved_state_continues_bit_for_bit():
    rng = np.random.default_rng(3)
    original, copy = make_combat(lanes=4), make_combat(lanes=4)
    begin(original)
    for _ in range(40):
        original.step(random_actions(original, rng))
    copy.set_state(original.get_state())
    for _ in range(40):
        actions = random_actions(original, rng)
        original.step(actions)
        copy.step(actions)
        assert np.array_equal(original.rows, copy.rows)
        assert np.array_equal(original.due, copy.due)
