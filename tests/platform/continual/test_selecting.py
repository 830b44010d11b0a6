"""Skills are selected for shifts of known cause, in few decisions of the new fight, and none where nothing changed."""

import numpy as np
import pytest

from fakes.learners import versions_of
from soulsgraph.continual.methods.learning import TaskWorld
from soulsgraph.continual.selecting import MOST_DECISIONS, select
from soulsgraph.transfer.consequences import changed_consequences
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill

#: Shifts of `five-skills` by the player's file, and the skill whose actions then do something else.
SHIFTS = {"run.speed_m_s = 6.5": "movement", "camera.yaw_rad_s = 4.0": "camera"}


def selected_for(tmp_path, change):
    plan, versions = versions_of("five-skills-best-0")
    table, _, rest = change.partition(".")
    player = f'based_on = "knight-five-skills"\nname = "shifted"\n[{table}]\n{rest}\n' if change else ""
    (tmp_path / "player.toml").write_text(player or 'based_on = "knight-five-skills"\nname = "the same"\n')
    file = tmp_path / "shifted.toml"
    file.write_text('based_on = "five-skills"\nname = "shifted"\nplayer = "player.toml"\n')
    home = TaskWorld(plan, 0, "five-skills")
    return select(dict.fromkeys(versions, home), TaskWorld(plan, 1, str(file)), versions)


@pytest.mark.parametrize("change", SHIFTS)
def test_the_skill_whose_actions_do_something_else_is_selected(tmp_path, change):
    selection = selected_for(tmp_path, change)
    assert SHIFTS[change] in selection.skills
    assert 0 < selection.decisions <= MOST_DECISIONS
    assert set(selection.reasons) == set(selection.skills)
    assert not {"dodge", "heal_attack"} & set(selection.skills)


def test_nothing_is_selected_where_nothing_changed(tmp_path):
    selection = selected_for(tmp_path, "")
    assert selection.skills == ()
    assert 0 < selection.decisions <= MOST_DECISIONS
    assert selection.ticks > 0


def test_other_moves_select_the_skills_that_see_them():
    plan, versions = versions_of("iudex-phase1-best-0")
    homes = dict.fromkeys(versions, TaskWorld(plan, 0, "iudex-phase1"))
    assert {"dodge", "heal_attack"} <= set(select(homes, TaskWorld(plan, 1, "vordt"), versions).skills)


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
    return DecisionColumns(episodes, rows, actions, np.zeros(len(episodes)), ticks, np.ones(len(episodes), np.bool_))


def changed(steps, seed=1):
    """Return what changed for a player whose every action, idling too, moved it by 0.4 m at home."""
    home = walked(0, np.full(ACTIONS, 0.4))
    return changed_consequences(MOVEMENT, home, walked(seed, steps), MOVEMENT.observation.columns)


def test_what_an_action_does_otherwise_is_found_and_named():
    steps = np.full(ACTIONS, 0.4)
    other = (IDLE + 1) % ACTIONS
    steps[other] = 0.6
    (found,) = changed(steps)
    assert found.action == MOVEMENT.actions[other].name
    assert found.what == "metres moved"
    assert found.change > 0.0


def test_what_changed_whatever_the_skill_did_is_not_its_own():
    assert not changed(np.full(ACTIONS, 0.6))


def test_nothing_is_known_to_be_its_own_where_the_skill_never_idled():
    home, there = walked(0, np.full(ACTIONS, 0.4)), walked(1, np.full(ACTIONS, 0.8))
    busy = DecisionColumns(*(column[there.actions != IDLE] for column in vars(there).values()))
    assert not changed_consequences(MOVEMENT, home, busy, MOVEMENT.observation.columns)


def test_few_episodes_say_nothing():
    home = walked(0, np.full(ACTIONS, 0.4))
    there = walked(1, np.full(ACTIONS, 0.8))
    few = DecisionColumns(*(column[there.episodes < 3] for column in vars(there).values()))
    assert not changed_consequences(MOVEMENT, home, few, MOVEMENT.observation.columns)


def test_equal_worlds_raise_no_false_alarm():
    # 20 comparisons of 8 actions and 7 consequences at four standard errors: expected false alarms are below 0.08.
    assert not any(changed(np.full(ACTIONS, 0.4), seed) for seed in range(1, 21))
