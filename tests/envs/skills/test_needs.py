"""The values that a skill declares to need are all that its observations and rewards depend on."""

import numpy as np
import pytest

from fakes.games import FakeGame
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import Capabilities
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import MADE_OF, RAW_SIZE, Column, Raw, state_rows
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, make_skill
from soulsgraph_envs.skills.skill import Decisions

SCENARIO = load_scenario("iudex-phase1")
SKILLS = [make_skill(name) for name in (*SKILL_NAMES, END_TO_END)]


def random_raw(rng, count):
    raw = rng.uniform(0.1, 3.0, (count, RAW_SIZE))
    raw[:, [Raw.PLAYER_HP_MAX, Raw.STAMINA_MAX, Raw.BOSS_HP_MAX]] = 5.0
    raw[:, Raw.LOCKED] = rng.integers(0, 2, count)
    return raw


@pytest.mark.parametrize("column", Column)
def test_a_column_depends_on_the_raw_values_it_is_made_of_and_on_no_other(column):
    rng = np.random.default_rng(3)
    raw = random_raw(rng, 64)
    before = state_rows(raw)[:, column]
    for value in Raw:
        changed = raw.copy()
        changed[:, value] = 1.0 - raw[:, value] if value == Raw.LOCKED else raw[:, value] * 0.7
        differs = not np.array_equal(state_rows(changed)[:, column], before)
        assert differs == (value in MADE_OF[column]), (column.name, value.name)


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_observation_and_reward_depend_on_what_is_needed_only(skill):
    rng = np.random.default_rng(4)
    first, second = random_raw(rng, 200), random_raw(rng, 200)
    others = [value for value in Raw if value not in skill.needs]
    changed = [part.copy() for part in (first, second)]
    for part in changed:
        part[:, others] = random_raw(rng, 200)[:, others]
    flags = np.zeros(200, np.bool_)
    actions = rng.integers(0, len(skill.actions), 200)
    told = []
    for before, after in ((first, second), changed):
        rows = state_rows(before), state_rows(after)
        told.append(
            (skill.reward.evaluate(Decisions(*rows, actions, flags, flags)), skill.observation(rows[0], SCENARIO))
        )
    assert np.array_equal(told[0][0], told[1][0])
    assert np.array_equal(told[0][1], told[1][1])


class CameralessGame(FakeGame):
    capabilities = Capabilities(
        supplies=frozenset(Raw.__members__) - {"CAMERA_X", "CAMERA_Y", "CAMERA_Z", "LOCKED", "FLASKS"}
    )


def test_skills_that_need_what_a_game_does_not_supply_are_refused_with_the_list():
    with pytest.raises(GameError) as refusal:
        Combat(CameralessGame(), SKILLS[:5], SCENARIO, Horizon("heal_attack", 10))
    told = str(refusal.value)
    assert "camera needs CAMERA_X, CAMERA_Y, CAMERA_Z" in told
    assert "lock_on needs CAMERA_X, CAMERA_Y, CAMERA_Z, LOCKED" in told
    assert "heal_attack needs FLASKS" in told
    assert "dodge needs" not in told


def test_skills_that_a_game_can_serve_are_not_refused_for_the_sake_of_others():
    Combat(CameralessGame(), SKILLS[2:4], SCENARIO, Horizon("dodge", 10))
