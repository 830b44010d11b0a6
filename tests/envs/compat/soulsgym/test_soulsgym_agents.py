"""Agents written for SoulsGym: stable-baselines3, CleanRL's loop, Gymnasium's vector environments."""

import gymnasium
import numpy as np
import pytest

import soulsgraph_envs.compat.soulsgym as soulsgym
from soulsgraph_envs.compat.soulsgym.environments import zero_based
from soulsgraph_envs.testing import check_agent_learns


def make():
    return gymnasium.make("soulsgraph/SoulsGymIudex-v0", random_player_pose=True)


class Unwrapped(gymnasium.Wrapper):
    """Hides `compute_reward`, by which stable-baselines3's checker would mistake SoulsEnv for a goal environment."""

    @property
    def unwrapped(self):
        return self


def test_a_loop_like_cleanrls_runs_on_flat_observations():
    def thunk():
        env = gymnasium.wrappers.FlattenObservation(make())
        return gymnasium.wrappers.RecordEpisodeStatistics(env)

    envs = gymnasium.vector.SyncVectorEnv([thunk] * 2)
    observations, _ = envs.reset(seed=1)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(observations.shape[1], envs.single_action_space.n)) * 0.1
    finished = []
    for _ in range(600):
        logits = observations @ weights + rng.gumbel(size=(2, 20))
        following, rewards, _, _, infos = envs.step(logits.argmax(axis=1))
        assert np.isfinite(following).all()
        assert np.isfinite(rewards).all()
        if "episode" in infos:
            finished += infos["episode"]["r"][infos["_episode"]].tolist()
        weights += 1e-6 * observations.T @ (np.eye(20)[logits.argmax(axis=1)] * rewards[:, None])
        observations = following
    assert finished
    assert max(finished) < 0
    envs.close()


def test_make_vec_gives_stacked_dictionaries_and_masks():
    envs = gymnasium.make_vec("soulsgraph/SoulsGymIudex-v0", num_envs=3, vectorization_mode="sync", skip_steps=True)
    shown, infos = envs.reset(seed=2)
    assert shown["player_pose"].shape == (3, 4)
    assert infos["action_mask"].shape == (3, 20)
    shown = envs.step(np.full(3, 19))[0]
    assert envs.observation_space.contains(shown)
    envs.close()


def test_an_episode_is_cut_off_after_3000_steps():
    env = gymnasium.make("soulsgraph/SoulsGymIudex-v0")
    env.reset(seed=0)
    steps, truncated = 0, False
    while not truncated:
        env.unwrapped.world.game.override(0, player_hp=454.0)
        terminated, truncated = env.step(19)[2:4]
        steps += 1
        assert not terminated
    assert steps == 3000


@pytest.mark.parametrize("wrap", [zero_based, gymnasium.wrappers.FlattenObservation])
def test_stable_baselines3s_checker_accepts_it(wrap):
    check_env = pytest.importorskip("stable_baselines3.common.env_checker").check_env

    check_env(Unwrapped(wrap(soulsgym.IudexEnv())), warn=False)
    check_env(Unwrapped(soulsgym.IudexImgEnv()), warn=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "policy", "make_env"),
    [
        ("DQN", "MlpPolicy", lambda: gymnasium.wrappers.FlattenObservation(make())),
        ("PPO", "MultiInputPolicy", lambda: zero_based(make())),
        ("PPO", "CnnPolicy", lambda: soulsgym.IudexImgEnv(resolution=(36, 64))),
    ],
    ids=["flat", "dictionary", "pictures"],
)
def test_stable_baselines_learns_what_pays(algorithm, policy, make_env):
    import stable_baselines3

    options = {"seed": 0, "gamma": 0.0, "learning_rate": 3e-3, "device": "cpu"}
    if algorithm == "DQN":
        options |= {"buffer_size": 500, "learning_starts": 16, "exploration_fraction": 0.5}
    else:
        options |= {"n_steps": 64}
    agent = getattr(stable_baselines3, algorithm)
    check_agent_learns(make_env, lambda env: agent(policy, env, **options).learn(256))
