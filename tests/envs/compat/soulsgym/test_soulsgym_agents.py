"""Agents written for SoulsGym: stable-baselines3, CleanRL's loop, Gymnasium's vector environments."""

import gymnasium
import numpy as np


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
