"""The Gymnasium and RLlib faces over the combat loop."""

import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv


def test_rllibs_checker_passes():
    check_multiagent_environments(SkillGraphEnv())


def test_rllibs_context_holds_the_keywords_and_tells_workers_and_environments_apart():
    keywords = {"skills": ("camera", "lock_on"), "scenario": "iudex-phase2"}
    plain, again = SkillGraphEnv(**keywords), SkillGraphEnv(EnvContext(keywords, worker_index=2))
    places = [(0, 0), (1, 0), (2, 0), (1, 1)]
    envs = [SkillGraphEnv(EnvContext(keywords, worker_index=worker, vector_index=vector)) for worker, vector in places]
    for env in (plain, again, *envs):
        env.reset(seed=3)
    assert list(plain.skills) == list(envs[0].skills) == ["camera", "lock_on"]
    fights = [env.combat.rows.tobytes() for env in envs]
    assert len({*fights}) == len(places)
    assert (plain.combat.rows.tobytes(), again.combat.rows.tobytes()) == (fights[0], fights[2])
    with pytest.raises(UnknownNameError, match="skils"):
        SkillGraphEnv(EnvContext({"skils": ["camera"]}, worker_index=1))


def test_reward_terms_add_up_and_the_end_is_told():
    env = SkillEnv("dodge")
    env.reset(seed=1)
    terminated = truncated = False
    while not (terminated or truncated):
        _, reward, terminated, truncated, info = env.step(1)
        terms = [value for key, value in info.items() if key.startswith("reward/")]
        assert sum(terms) == pytest.approx(reward, abs=1e-5)
    assert terminated
    assert info["died"]
    assert not info["won"]


#: A boss that is upon the player before the skill's first decision, in most of its fights.
_HASTY = """
based_on = "iudex-phase1"
name = "hasty"
boss = "hasty-boss.toml"
death_hp_ratio = 0.9
[starts.mid]
distance_m = [1.4, 2.5]
facing = true
"""
_HASTY_BOSS = """
based_on = "iudex-phase1"
name = "hasty"
time_factor = 0.1
damage_factor = 10.0
[aggression]
wait_s = [0.0, 0.0]
near_wait_s = [0.0, 0.0]
"""


@pytest.fixture
def hasty(tmp_path):
    (tmp_path / "hasty-boss.toml").write_text(_HASTY_BOSS, encoding="utf-8")
    (file := tmp_path / "hasty.toml").write_text(_HASTY, encoding="utf-8")
    return str(file)


def test_a_reset_draws_ever_new_fights_until_one_lasts_to_the_first_decision(hasty, monkeypatch):
    begun = []
    begin = Rollout.begin
    monkeypatch.setattr(Rollout, "begin", lambda self, lanes, seeds: (begun.extend(seeds), begin(self, lanes, seeds)))
    env, tries = SkillEnv("heal_attack", hasty), []
    for seed in range(60):
        begun.clear()
        env.reset(seed=seed)
        tries.append(list(begun))
        assert len(set(begun)) == len(begun)
    # Those of the first two are fixed: recordings and results are drawn from them.
    again = [one for one in tries if len(one) > 1]
    assert [one[1] for one in again] == [derive_seeds(one[0], 2)[0] for one in again]
    assert any(len(one) > 2 for one in tries)
    vector, (first, _) = SkillVectorEnv(8, "heal_attack", hasty), env.reset(seed=5)
    np.testing.assert_array_equal(vector.reset(seed=[5, *range(7)])[0][0], first)


def test_a_scenario_in_which_no_fight_lasts_to_the_first_decision_is_named(hasty, monkeypatch):
    env = SkillVectorEnv(2, "heal_attack", hasty)
    # Half of the fights begin with the skill due, as its clock is drawn; here it never is.
    monkeypatch.setattr(Rollout, "due", np.zeros(2, np.bool_))
    with pytest.raises(GameError, match="hasty"):
        env.reset(seed=0)
