"""What the page of each environment says."""

from inspect import signature

import numpy as np
import pytest

from environment_pages import ARGUMENTS, environment_tables
from soulsgraph_envs import id_of
from soulsgraph_envs.gym.continual_env import ContinualEnv
from soulsgraph_envs.gym.skill_env import SkillEnv
from soulsgraph_envs.skills import END_TO_END


@pytest.fixture(scope="module")
def tables():
    return {table.title: table for table in environment_tables()}


def test_every_argument_is_explained():
    assert {*ARGUMENTS} == {*signature(SkillEnv).parameters} | {*signature(ContinualEnv).parameters}


@pytest.mark.parametrize("skill", ["dodge", END_TO_END])
def test_the_tables_of_an_id_are_its_environments(tables, skill):
    env, short = SkillEnv(skill), id_of(skill).partition("/")[2]
    assert tables[id_of(skill)].note
    observed = tables[f"{short}: observations"].rows
    assert [row[1] for row in observed] == [*env.rollout.skill.observation.names]
    for column, bounds in ((3, env.observation_space.low), (4, env.observation_space.high)):
        np.testing.assert_allclose([float(row[column]) for row in observed], bounds, rtol=1e-3)
    assert len(tables[f"{short}: actions"].rows) == env.action_space.n
    terms = tables[f"{short}: reward"].rows
    assert [row[0] for row in terms] == [*env.rollout.skill.reward.names]
    assert all(formula for *_, formula in terms)
