"""The PettingZoo face: PettingZoo's own tests, and the same fight as RLlib's face from the same actions."""

import pickle

import numpy as np
import pytest

from soulsgraph_envs.core.errors import ActionError, ResetNeededError, SeedError, UnknownNameError
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES

pytest.importorskip("pettingzoo")
from pettingzoo.test import parallel_api_test, parallel_seed_test

from soulsgraph_envs.gym.pettingzoo import SkillGraphParallelEnv


def actions_for(env, random):
    return {name: int(random.integers(env.action_space(name).n)) for name in env.possible_agents}


def test_pettingzoos_own_tests_pass_without_a_warning():
    parallel_api_test(SkillGraphParallelEnv(), num_cycles=200)
    parallel_api_test(SkillGraphParallelEnv(("end_to_end",), "vordt"), num_cycles=100)
    parallel_seed_test(SkillGraphParallelEnv, num_cycles=50)


def test_it_plays_the_fights_of_rllibs_face():
    ours, theirs, random = SkillGraphParallelEnv(), SkillGraphEnv(), np.random.default_rng(0)
    seen, infos = ours.reset(seed=5)
    due, _ = theirs.reset(seed=5)
    for _ in range(300):
        assert {name for name, info in infos.items() if info["due"]} == {*due} or not ours.agents
        for name, observation in due.items():
            np.testing.assert_array_equal(seen[name], observation)
        if not ours.agents:
            (seen, infos), (due, _) = ours.reset(), theirs.reset()
            continue
        actions = actions_for(ours, random)
        seen, rewards, terminated, truncated, infos = ours.step(actions)
        due, paid, ended, cut, _ = theirs.step({name: actions[name] for name in due})
        assert rewards == dict.fromkeys(SKILL_NAMES, 0.0) | paid
        assert ({*terminated.values()}, {*truncated.values()}) == ({ended["__all__"]}, {cut["__all__"]})


def test_observations_and_the_state_lie_within_their_spaces():
    env, random = SkillGraphParallelEnv(), np.random.default_rng(1)
    env.reset(seed=1)
    for _ in range(60):
        seen, *_, infos = env.step(actions_for(env, random))
        for name in env.agents:
            assert env.observation_space(name).contains(seen[name])
            assert infos[name]["action_mask"].shape == (env.action_space(name).n,)
        assert env.state_space.contains(env.state())


def test_a_pickled_copy_goes_on_as_the_original():
    env, random = SkillGraphParallelEnv(), np.random.default_rng(2)
    env.reset(seed=2)
    copied = pickle.loads(pickle.dumps(env))
    for _ in range(30):
        actions = actions_for(env, random)
        np.testing.assert_equal(copied.step(actions), env.step(actions))


def test_what_is_wrong_is_refused_and_a_picture_is_drawn():
    with pytest.raises(UnknownNameError, match="render mode"):
        SkillGraphParallelEnv(render_mode="human")
    env = SkillGraphParallelEnv(render_mode="rgb_array")
    for asks in (env.render, lambda: env.step({})):
        with pytest.raises(ResetNeededError):
            asks()
    with pytest.raises(SeedError):
        env.reset(seed=-1)
    _, infos = env.reset(seed=0)
    assert env.render().shape == (360, 640, 3)
    due = next(name for name, info in infos.items() if info["due"])
    with pytest.raises(ActionError):
        env.step({name: 0 for name in env.agents if name != due})
    with pytest.raises(ActionError, match="'parry'"):
        env.step({"parry": 0})
