"""Agents written for SoulsGym: stable-baselines3, CleanRL's loop, Gymnasium's vector environments."""

import gymnasium
import numpy as np
import pytest

import soulsgraph_envs.compat.soulsgym as soulsgym
from fakes.paid_actions import check_agent_learns


def make():
    return gymnasium.make("soulsgraph/SoulsGymIudex-v0", random_player_pose=True)


class Unwrapped(gymnasium.Wrapper):
    """Hides `compute_reward`, by which stable-baselines3's checker would mistake SoulsEnv for a goal environment."""

    @property
    def unwrapped(self):
        return self


def test_vectors_of_it_give_stacked_observations_masks_and_the_returns_of_episodes():
    envs = gymnasium.make_vec(
        "soulsgraph/SoulsGymIudex-v0",
        num_envs=2,
        vectorization_mode="sync",
        wrappers=[gymnasium.wrappers.FlattenObservation, gymnasium.wrappers.RecordEpisodeStatistics],
    )
    shown, infos = envs.reset(seed=2)
    returns = []
    while not returns:
        assert envs.observation_space.contains(shown)
        assert infos["action_mask"].shape == (2, 20)
        # The first action walks up to the boss, who wins.
        shown, rewards, _, _, infos = envs.step(np.zeros(2, np.int64))
        assert np.isfinite(rewards).all()
        if "episode" in infos:
            returns = infos["episode"]["r"][infos["_episode"]]
    assert max(returns) < 0
    envs.close()


def test_stable_baselines3s_checker_accepts_it():
    check_env = pytest.importorskip("stable_baselines3.common.env_checker").check_env

    check_env(Unwrapped(gymnasium.wrappers.FlattenObservation(soulsgym.IudexEnv())), warn=False)
    check_env(Unwrapped(soulsgym.IudexImgEnv()), warn=True)


@pytest.mark.slow
def test_stable_baselines_learns_what_pays():
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    options = {"n_steps": 64, "seed": 0, "gamma": 0.0, "learning_rate": 3e-3, "device": "cpu"}
    check_agent_learns(
        lambda: gymnasium.wrappers.FlattenObservation(make()),
        lambda env: stable_baselines3.PPO("MlpPolicy", env, **options).learn(256),
    )
