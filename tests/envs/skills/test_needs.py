"""The values that a skill declares to need are all that its observations and rewards depend on."""

import numpy as np
import pytest

from fakes.games import LossyGame
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import Capabilities
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import MADE_OF, RAW_SIZE, Column, Raw, state_rows
from soulsgraph_envs.simulator import Simulator
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
    seen, paid = [], []
    for raws in ((first, second), changed):
        before, after = map(state_rows, raws)
        seen.append(skill.observation(before, SCENARIO))
        paid.append(skill.reward.evaluate(Decisions(before, after, actions, flags, flags)))
    assert np.array_equal(*seen)
    assert np.array_equal(*paid)


def test_skills_that_need_what_a_game_does_not_supply_are_refused_by_name():
    game, missing = LossyGame(Simulator(1), {}), {"CAMERA_X", "CAMERA_Y", "CAMERA_Z", "LOCKED", "FLASKS"}
    game.capabilities = Capabilities(supplies=frozenset(Raw.__members__) - missing)
    for skill, value in (("camera", "CAMERA_X"), ("lock_on", "LOCKED"), ("heal_attack", "FLASKS")):
        with pytest.raises(GameError, match=f"{skill}.* {value}"):
            Combat(game, SKILLS[:5], SCENARIO, Horizon("heal_attack", 10))
    Combat(game, SKILLS[2:4], SCENARIO, Horizon("dodge", 10))
