"""The running normaliser, against stable-baselines3's VecNormalize."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills.skill import normalized
from soulsgraph_policies.agents.inference import Floats, RunningNormalizer


class _Silent(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)


def _vec_normalize() -> VecNormalize:
    return VecNormalize(DummyVecEnv([_Silent]), norm_reward=False)


def _normalized(normalizer: RunningNormalizer, observations: Floats, clip: float) -> Floats:
    inverse = 1.0 / normalizer.deviation
    return np.array(
        [
            [normalized(*of_column, clip) for of_column in zip(row, normalizer.mean, inverse, strict=True)]
            for row in observations
        ],
        np.float32,
    )


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_statistics_and_observations_equal_vec_normalize(seed: int, sizes: list[int]) -> None:
    random, reference, ours = np.random.default_rng(seed), _vec_normalize(), RunningNormalizer(4)
    for size in sizes:
        batch = (random.standard_normal((size, 4)) * [1, 20, 0, 300] + [0, 5, -68.8, 595]).astype(np.float32)
        reference.obs_rms.update(batch.astype(np.float64))
        ours.update(batch)
    np.testing.assert_allclose(ours.mean, reference.obs_rms.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.variance, reference.obs_rms.var, rtol=1e-9)
    seen = (random.standard_normal((50, 4)) * 400).astype(np.float32)
    np.testing.assert_allclose(_normalized(ours, seen, 10.0), reference.normalize_obs(seen), rtol=1e-6, atol=1e-6)


def test_constant_column_stays_finite_and_new_values_are_clipped() -> None:
    ours = RunningNormalizer(1)
    for _ in range(1000):
        ours.update(np.full((10, 1), -68.8, np.float32))
    values = _normalized(ours, np.array([[-68.8], [-60.0]], np.float32), 10.0)
    assert abs(values[0, 0]) < 0.01
    assert values[1, 0] == 10.0


def test_state_of_another_size_is_refused() -> None:
    with pytest.raises(SoulsGraphError, match="expected 4 columns, found 3"):
        RunningNormalizer(4).set_state(RunningNormalizer(3).get_state())


def test_indicators_stay_as_they_are_beside_columns_that_do_not() -> None:
    ours, plain = RunningNormalizer(3, np.array([False, True, True])), RunningNormalizer(1)
    batch = np.array([[5.0, 1.0, 0.0], [7.0, 0.0, 0.0], [9.0, 0.0, 0.0]], np.float32)
    for _ in range(3):
        ours.update(batch)
        plain.update(batch[:, :1])
    np.testing.assert_array_equal(_normalized(ours, batch, 10.0)[:, 1:], batch[:, 1:])
    np.testing.assert_array_equal(_normalized(ours, batch, 10.0)[:, :1], _normalized(plain, batch[:, :1], 10.0))
