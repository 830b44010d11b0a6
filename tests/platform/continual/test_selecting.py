"""Skills are selected for shifts of known cause, in few decisions of the new fight, and none where nothing changed."""

from pathlib import Path

import numpy as np
import pytest

from fakes.learners import versions_of
from soulsgraph.continual.consequences import NEIGHBOURS, FollowedDecisions, HomeConsequences, _expected, unseen_inputs
from soulsgraph.continual.methods.learning import PlayedFights, TaskWorld
from soulsgraph.continual.selecting import MOST_DECISIONS, Home, select, select_for_run
from soulsgraph.zoo import open_run
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill


def selected(kind, *homes, kept=None, agent=1):
    """Select skills of an agent of the zoo for a labelled shift; it learned last in the first of the homes.

    The second agent meets what every shift changes.
    """
    plan, versions = versions_of(f"five-skills-best-{agent}")
    known = [Home(TaskWorld(plan, place, name), versions) for place, name in enumerate(homes or ("five-skills",))]
    task = TaskWorld(plan, len(known), f"generated/labelled-{kind}/1")
    return select(dict.fromkeys(versions, known), task, versions, kept or PlayedFights())


@pytest.fixture(scope="module")
def known():
    """What the agent's skills do at home, played once for all tests."""
    return PlayedFights()


@pytest.mark.parametrize(
    ("kind", "skills"),
    [
        ("none", set()),
        ("lock-view", {"lock_on"}),
        ("camera-reversed", {"camera"}),
        ("arena", {"movement"}),
        # Another boss's blows are another matter for whoever strikes between them, too.
        ("moves", {"dodge", "heal_attack"}),
        ("blow", {"heal_attack"}),
        ("more-flasks", {"heal_attack"}),
        # Of these no single skill wins back what they cost.
        ("no-flask", set()),
        ("longer", set()),
        ("early-death", set()),
    ],
)
def test_the_skill_that_a_shift_is_meant_for_is_selected(kind, skills, known):
    selection = selected(kind, kept=known)
    assert {*selection.skills} == {*selection.reasons} == skills
    assert 0 < selection.decisions <= MOST_DECISIONS
    assert selection.ticks > 0


@pytest.mark.parametrize("agent", [0, 2])
def test_a_lock_that_is_seldom_asked_for_where_it_is_refused_is_found(agent):
    assert "lock_on" in selected("lock-view", agent=agent).skills


@pytest.mark.parametrize("agent", [0, 2])
def test_nothing_is_selected_for_an_equal_fight_of_other_seeds(agent):
    assert selected("none", agent=agent).skills == ()


def test_a_skill_goes_on_from_an_earlier_home_that_the_task_is_like():
    selection = selected("none", "generated/labelled-camera-reversed/1", "five-skills")
    assert selection.skills == ()
    assert {skill: home.world.name for skill, home in selection.starts.items()} == {"camera": "five-skills"}


def test_skills_of_a_run_are_selected_for_other_moves_that_they_see():
    selection = select_for_run(open_run(Path("iudex-phase1-best-0")), "iudex-phase1", "vordt")
    assert {"dodge", "heal_attack"} <= set(selection.skills)
    assert selection.decisions <= MOST_DECISIONS


def test_what_differs_and_no_look_shows_is_named():
    found = {name: select_for_run(open_run(Path("vordt-best-0")), "vordt", name) for name in ("vordt", "vordt-whole")}
    assert found["vordt"].overlooked == ()
    assert found["vordt-whole"].skills == ("heal_attack",)
    assert [one.partition(" (")[0] for one in found["vordt-whole"].overlooked] == [
        *("the boss's HP", "a player is dead below", "what the player can do")
    ]


MOVEMENT = make_skill("movement")
ACTIONS = len(MOVEMENT.actions)
IDLE = next(index for index, one in enumerate(MOVEMENT.actions) if not (one.holds | one.presses))


def walked(seed, steps):
    """Return 40 episodes of 60 decisions of movement; each moves the player by `steps` (actions,) and some noise."""
    random = np.random.default_rng(seed)
    episodes = np.repeat(np.arange(40), 60)
    actions = random.integers(0, ACTIONS, len(episodes))
    rows = np.zeros((len(episodes), STATE_SIZE), np.float32)
    rows[:, Column.CAMERA_X] = 1.0
    rows[:, Column.DISTANCE] = random.uniform(2.0, 6.0, len(episodes))
    moved = np.asarray(steps)[actions] + random.normal(0.0, 0.05, len(episodes))
    # Where a decision ends the next one begins.
    rows[1:, Column.PLAYER_X] = np.cumsum(moved)[:-1]
    ticks = np.ones(len(episodes), np.int64)
    return DecisionColumns(episodes, rows, actions, np.zeros(len(episodes)), ticks)


def changed(steps, seed=1):
    """Return what changed for a player whose every action, idling too, moved it by 0.4 m at home."""
    home = walked(0, np.full(ACTIONS, 0.4))
    return HomeConsequences(MOVEMENT, home, MOVEMENT.observation.columns).changed(walked(seed, steps))


def test_decisions_are_compared_with_the_nearest_in_weighted_situations_and_the_animations_that_count():
    random = np.random.default_rng(5)

    def decisions(count):
        sizes, none = ((count, 3), (count, 8)), np.zeros(count, np.int64)
        situations, following = (random.normal(size=size) for size in sizes)
        return FollowedDecisions(situations, random.integers(0, 3, (count, 2)), none, following, none)

    asked, known, weights = decisions(40), decisions(300), np.array([1.0, 2.0, 0.0])
    apart = (((asked.situations[:, None] - known.situations) * weights) ** 2).sum(axis=2)
    # Another animation counts as three deviations.
    apart += 9.0 * (asked.animations[:, None, 0] != known.animations[:, 0])
    nearest = np.argsort(apart, axis=1)[:, :NEIGHBOURS]
    found, distance = _expected(asked, known, weights, np.array([1.0, 0.0]))
    np.testing.assert_allclose(found, known.following[nearest].mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(distance, np.take_along_axis(apart, nearest, axis=1).mean(axis=1))


def test_what_an_action_does_otherwise_is_found_and_named():
    steps = np.full(ACTIONS, 0.4)
    other = (IDLE + 1) % ACTIONS
    steps[other] = 0.6
    found = changed(steps)
    # Everywhere, and in parts of the range of what the skill observes.
    assert {(one.action, one.what) for one in found} == {(MOVEMENT.actions[other].name, "metres moved")}
    assert "" in {one.where for one in found}
    assert all(one.change > 0.0 for one in found)


def test_what_an_action_does_otherwise_in_a_part_of_the_range_is_found_there():
    home, there = walked(0, np.full(ACTIONS, 0.4)), walked(1, np.full(ACTIONS, 0.4))
    other = (IDLE + 1) % ACTIONS
    moved = np.diff(there.rows[:, Column.PLAYER_X].astype(np.float64), append=np.nan)
    moved[(there.actions == other) & (there.rows[:, Column.DISTANCE] > 5.0)] += 0.3
    there.rows[1:, Column.PLAYER_X] = np.cumsum(moved[:-1])
    found = HomeConsequences(MOVEMENT, home, [*MOVEMENT.observation.columns, Column.DISTANCE]).changed(there)
    assert {one.action for one in found} == {MOVEMENT.actions[other].name}


def test_what_a_skill_never_observed_at_home_is_found_and_named():
    scenario, home = load_scenario("five-skills"), walked(0, np.full(ACTIONS, 0.4))
    there = walked(1, np.full(ACTIONS, 0.4))
    assert not unseen_inputs(MOVEMENT, (scenario, home), (scenario, there))
    there.rows[:, Column.BOSS_Y] += 30.0
    (found,) = unseen_inputs(MOVEMENT, (scenario, home), (scenario, there))
    assert found.name == "BOSS_Y"
    assert found.share == pytest.approx(1.0)


def test_what_changed_whatever_the_skill_did_is_not_its_own():
    assert not changed(np.full(ACTIONS, 0.6))


def test_nothing_is_known_to_be_its_own_where_the_skill_never_idled():
    home, there = walked(0, np.full(ACTIONS, 0.4)), walked(1, np.full(ACTIONS, 0.8))
    busy = DecisionColumns(*(column[there.actions != IDLE] for column in vars(there).values()))
    assert not HomeConsequences(MOVEMENT, home, MOVEMENT.observation.columns).changed(busy)


def test_few_decisions_in_a_row_say_nothing():
    home = walked(0, np.full(ACTIONS, 0.4))
    steps = np.full(ACTIONS, 0.4)
    steps[(IDLE + 1) % ACTIONS] = 0.8
    there = walked(1, steps)
    few = there.without(np.arange(1, 40))
    assert not HomeConsequences(MOVEMENT, home, MOVEMENT.observation.columns).changed(few)


def test_equal_worlds_raise_no_false_alarm():
    # 20 comparisons, each with a probability of a false alarm of 0.01: two or more in 2 % of such tests.
    assert sum(bool(changed(np.full(ACTIONS, 0.4), seed)) for seed in range(1, 21)) <= 1
