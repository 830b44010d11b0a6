"""The PettingZoo face: PettingZoo's own tests, and the same fight as RLlib's face from the same actions."""

import pickle
import warnings

import numpy as np
import pytest

from soulsgraph_envs.core.errors import ActionError, ResetNeededError, SeedError, SoulsGraphError
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES

pytest.importorskip("pettingzoo")
with warnings.catch_warnings():
    # Its tests import an environment of its own, which it has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test, parallel_seed_test

from soulsgraph_envs.gym.pettingzoo import SkillGraphParallelEnv


def test_pettingzoos_own_tests_pass_without_a_warning():
    parallel_api_test(SkillGraphParallelEnv(), num_cycles=100)
    parallel_api_test(SkillGraphParallelEnv(("end_to_end",), "vordt"), num_cycles=50)
    parallel_seed_test(SkillGraphParallelEnv, num_cycles=30)


def test_it_plays_the_fights_of_rllibs_face_within_its_spaces_and_so_does_a_pickled_copy():
    ours, theirs, random = SkillGraphParallelEnv(), SkillGraphEnv(), np.random.default_rng(0)
    seen, infos = ours.reset(seed=5)
    due, _ = theirs.reset(seed=5)
    copied, ended = pickle.loads(pickle.dumps(ours)), 0
    for _ in range(300):
        if not ours.agents:
            ended += 1
            (seen, infos), (due, _) = ours.reset(), theirs.reset()
            np.testing.assert_equal(copied.reset(), (seen, infos))
        assert {name for name, info in infos.items() if info["due"]} == {*due}
        for name, observation in due.items():
            np.testing.assert_array_equal(seen[name], observation)
        for name in ours.agents:
            assert ours.observation_space(name).contains(seen[name])
            assert infos[name]["action_mask"].shape == (ours.action_space(name).n,)
        assert ours.state_space.contains(ours.state())
        actions = {name: int(random.integers(ours.action_space(name).n)) for name in ours.possible_agents}
        seen, rewards, terminated, truncated, infos = ours.step(actions)
        np.testing.assert_equal(copied.step(actions), (seen, rewards, terminated, truncated, infos))
        due, paid, over, cut, _ = theirs.step({name: actions[name] for name in due})
        assert rewards == dict.fromkeys(SKILL_NAMES, 0.0) | paid
        assert ({*terminated.values()}, {*truncated.values()}) == ({over["__all__"]}, {cut["__all__"]})
    assert ended > 0


def test_what_is_wrong_is_refused_and_a_picture_is_drawn():
    with pytest.raises(SoulsGraphError, match="human"):
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
    for wrong in ({name: 0 for name in env.agents if name != due}, {"parry": 0}):
        with pytest.raises(ActionError):
            env.step(wrong)
