"""The Gymnasium and RLlib faces over the combat loop."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from ray.rllib.env.env_context import EnvContext
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from stable_baselines3.common.env_checker import check_env as check_env_for_stable_baselines

from soulsgraph_envs import id_of
from soulsgraph_envs.combat.rollout import MOST_STARTS, Rollout
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.seeds import derive_seeds, episode_seeds
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES


@pytest.mark.parametrize("make", [lambda n=n: SkillEnv(n) for n in (*SKILL_NAMES, END_TO_END)])
def test_gymnasiums_and_stable_baselines_checkers_pass(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render.*")
        check_env(make(), skip_render_check=True)
        check_env_for_stable_baselines(make())


def test_every_shipped_skill_has_an_id():
    assert {id_of(skill) for skill in (*SKILL_NAMES, END_TO_END)} <= gymnasium.registry.keys()


def test_rllibs_checker_passes():
    check_multiagent_environments(SkillGraphEnv())


def test_rllibs_context_holds_the_keywords_and_tells_workers_and_environments_apart():
    keywords = {"skills": ("camera", "lock_on"), "scenario": "iudex-phase2"}
    plain, first = SkillGraphEnv(**keywords), SkillGraphEnv(EnvContext(keywords, worker_index=0))
    assert list(first.skills) == ["camera", "lock_on"]
    places = [(0, 0), (1, 0), (2, 0), (1, 1)]
    fights = []
    for worker, vector in places:
        env = SkillGraphEnv(EnvContext(keywords, worker_index=worker, vector_index=vector))
        env.reset(seed=3)
        fights.append(env.combat.rows.copy())
    plain.reset(seed=3)
    assert np.array_equal(plain.combat.rows, fights[0])
    for index, fight in enumerate(fights):
        assert not any(np.array_equal(fight, other) for other in fights[:index])
    again = SkillGraphEnv(EnvContext(keywords, worker_index=2))
    again.reset(seed=3)
    assert np.array_equal(again.combat.rows, fights[2])


def test_an_unknown_key_of_rllibs_context_is_refused():
    with pytest.raises(UnknownNameError, match=r"keyword of SkillGraphEnv.*'skils'"):
        SkillGraphEnv(EnvContext({"skils": ["camera"]}, worker_index=1))


@pytest.mark.parametrize("name", ["soulsgraph/Skill-v0", "soulsgraph/EndToEnd-v0"])
def test_registered_with_gymnasium(name):
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


def test_registered_vector_face():
    env = gymnasium.make_vec("soulsgraph/Skill-v0", num_envs=3, vectorization_mode="vector_entry_point", skill="dodge")
    assert env.reset(seed=0)[0].shape == (3, 7)


def test_same_seed_gives_the_same_sequence_of_episodes():
    def play(env):
        trace = [env.reset(seed=4)[0]]
        for action in [0, 1, 1, 0, 1] * 40:
            observation, reward, terminated, truncated, _ = env.step(action)
            trace.append(np.append(observation, reward))
            if terminated or truncated:
                trace.append(env.reset()[0])
        return np.concatenate(trace)

    assert np.array_equal(play(SkillEnv("dodge")), play(SkillEnv("dodge")))


def test_vector_lanes_are_the_single_env_side_by_side_and_tell_the_last_observation():
    lanes, script = 3, np.random.default_rng(0).integers(0, 3, (400, 3))
    vector = SkillVectorEnv(lanes, "heal_attack", autoreset_mode="SameStep")
    singles = [SkillEnv("heal_attack") for _ in range(lanes)]
    seeds = [8, 10**30, 9]
    observations, _ = vector.reset(seed=seeds)
    for lane, env in enumerate(singles):
        assert np.array_equal(env.reset(seed=seeds[lane])[0], observations[lane])
    ends = 0
    for actions in script:
        observations, rewards, terminated, truncated, info = vector.step(actions)
        for lane, env in enumerate(singles):
            observation, reward, *ended, _ = env.step(actions[lane])
            assert reward == pytest.approx(rewards[lane])
            assert ended == [terminated[lane], truncated[lane]]
            if any(ended):
                ends += 1
                assert np.array_equal(info["final_obs"][lane], observation)
                observation, _ = env.reset()
            assert np.array_equal(observation, observations[lane])
    assert ends > 0


def test_one_seed_starts_a_stream_of_its_own_in_every_lane():
    vector = SkillVectorEnv(3)
    first, _ = vector.reset(seed=8)
    for lane, observation in enumerate(first):
        vector.rollout.begin_deciding(np.array([lane]), episode_seeds(8, lane, 0))
        assert np.array_equal(vector.rollout.observations[lane], observation)
    assert len(np.unique(first, axis=0)) == 3


def test_end_info_and_reward_terms_add_up():
    env = SkillEnv("dodge")
    env.reset(seed=1)
    while True:
        _, reward, terminated, truncated, info = env.step(1)
        terms = [value for key, value in info.items() if key.startswith("reward/")]
        assert sum(terms) == pytest.approx(reward, abs=1e-5)
        if terminated or truncated:
            break
    assert terminated
    assert info["died"]
    assert not info["won"]


def test_skills_act_only_on_ticks_at_which_they_are_due():
    env = SkillGraphEnv()
    observations, _ = env.reset(seed=3)
    last_dodge = None
    for tick in range(200):
        actions = {name: 0 for name in observations}
        if "dodge" in actions:
            assert last_dodge is None or tick - last_dodge == 5
            last_dodge = tick
        observations, _, terminated, truncated, _ = env.step(actions)
        if terminated["__all__"] or truncated["__all__"]:
            break
    assert last_dodge is not None


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


def _hasty(folder):
    (folder / "hasty-boss.toml").write_text(_HASTY_BOSS, encoding="utf-8")
    (file := folder / "hasty.toml").write_text(_HASTY, encoding="utf-8")
    return str(file)


def test_a_reset_draws_ever_new_fights_until_one_lasts_to_the_first_decision(tmp_path, monkeypatch):
    begun = []
    begin = Rollout.begin
    monkeypatch.setattr(Rollout, "begin", lambda self, lanes, seeds: (begun.extend(seeds), begin(self, lanes, seeds)))
    env, tries = SkillEnv("heal_attack", _hasty(tmp_path)), []
    for seed in range(100):
        begun.clear()
        env.reset(seed=seed)
        tries.append(list(begun))
        assert len(set(begun)) == len(begun)
    # Those of the first two are fixed: recordings and results are drawn from them.
    again = [one for one in tries if len(one) > 1]
    assert all(one[1] == derive_seeds(one[0], 2)[0] for one in again)
    assert any(len(one) > 2 for one in tries)
    vector, (first, _) = SkillVectorEnv(8, "heal_attack", _hasty(tmp_path)), env.reset(seed=5)
    np.testing.assert_array_equal(vector.reset(seed=[5, *range(7)])[0][0], first)


def test_a_scenario_in_which_no_fight_lasts_to_the_first_decision_is_named_with_a_remedy(tmp_path, monkeypatch):
    env = SkillVectorEnv(2, "heal_attack", _hasty(tmp_path))
    # Half of the fights begin with the skill due, as its clock is drawn; here it never is.
    monkeypatch.setattr(Rollout, "due", np.zeros(2, np.bool_))
    with pytest.raises(GameError, match=rf"hasty: expected fights in which heal_attack decides, found {MOST_STARTS} "):
        env.reset(seed=0)
