"""The running normaliser, against stable-baselines3's VecNormalize."""

import gymnasium as gym
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from soulsgraph_envs.skills.skill import normalized
from soulsgraph_policies.agents.inference import RunningNormalizer


class _Silent(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_statistics_and_observations_equal_vec_normalize(seed: int, sizes: list[int]) -> None:
    random, reference = np.random.default_rng(seed), VecNormalize(DummyVecEnv([_Silent]), norm_reward=False)
    ours, marked = RunningNormalizer(4), RunningNormalizer(4, np.array([False, True, False, True]))
    for size in sizes:
        # The last column is constant, whose small deviation a later value meets.
        batch = (random.standard_normal((size, 4)) * [1, 20, 300, 0] + [0, 5, 595, -68.8]).astype(np.float32)
        reference.obs_rms.update(batch.astype(np.float64))
        ours.update(batch)
        marked.update(batch)
    np.testing.assert_allclose(ours.mean, reference.obs_rms.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.variance, reference.obs_rms.var, rtol=1e-9)
    seen = (random.standard_normal((50, 4)) * 400).astype(np.float32)
    found = [
        [normalized(*of_column, 10.0) for of_column in zip(row, ours.mean, 1.0 / ours.deviation, strict=True)]
        for row in seen
    ]
    np.testing.assert_allclose(found, reference.normalize_obs(seen), rtol=1e-6, atol=1e-6)
    # Indicators stay as they are beside columns that do not.
    np.testing.assert_array_equal(marked.mean, [ours.mean[0], 0.0, ours.mean[2], 0.0])
    np.testing.assert_array_equal(marked.variance, [ours.variance[0], 1.0, ours.variance[2], 1.0])
