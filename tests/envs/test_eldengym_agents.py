"""Agents that others wrote, on EldenGym's environment: nothing changed but where it comes from."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from soulsgraph_envs import eldengym

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.eldengym.errors.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]


def make(**options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("EldenGym-v0", scenario_name="margit", driver="simulator", **options)


def test_the_loop_of_the_documentation_runs() -> None:
    env = make()
    obs, info = env.reset()
    for _ in range(20):
        action = env.action_space.sample()
        obs, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            obs, info = env.reset()
    assert env.observation_space.contains(obs)
    assert np.isfinite(float(reward))
    assert info["simulated"]
    env.close()


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_gymnasiums_vector_wrappers_step_many(vector: Any) -> None:
    envs = vector([make, make])
    observations, _ = envs.reset(seed=0)
    assert observations["frame"].shape == (2, 90, 160, 3)
    first, rewards, *_, infos = envs.step(np.array([1, 6]))
    assert rewards.shape == (2,)
    assert infos["step_count"].tolist() == [1, 1]
    assert not (first["frame"][0] == first["frame"][1]).all()
    envs.close()


def test_a_single_file_agents_loop_records_episodes() -> None:
    def thunk() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.RecordEpisodeStatistics(make(observation_mode="rgb", max_step=5))

    envs = gymnasium.vector.SyncVectorEnv([thunk, thunk], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    envs.reset(seed=1)
    lengths: list[int] = []
    for _ in range(11):
        *_, infos = envs.step(envs.action_space.sample())
        if "final_info" in infos:
            lengths += infos["final_info"]["episode"]["l"].tolist()
    assert lengths == [5, 5, 5, 5]


def test_importing_it_loads_no_learning_library_and_no_client() -> None:
    code = (
        "import sys; from soulsgraph_envs import eldengym; import soulsgraph_envs.eldengym.wrappers; "
        "eldengym.make('Margit-v0', driver='simulator').reset(seed=0); "
        "print([name for name in ('torch', 'ray', 'grpc', 'pysiphon', 'Xlib', 'pygame') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "policy", "options"),
    [
        ("PPO", "CnnPolicy", {"observation_mode": "rgb"}),
        ("PPO", "MultiInputPolicy", {}),
        ("PPO", "MultiInputPolicy", {"action_mode": "multi_binary"}),
        ("DQN", "CnnPolicy", {"observation_mode": "rgb"}),
        ("DQN", "MultiInputPolicy", {"frame_size": (36, 36)}),
    ],
)
def test_stable_baselines_learns_from_it(algorithm: str, policy: str, options: dict[str, Any]) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env

    env = make(**options)
    check_env(env)
    few = {"n_steps": 16, "batch_size": 16} if algorithm == "PPO" else {"buffer_size": 100, "learning_starts": 8}
    agent = getattr(sb3, algorithm)(policy, env, seed=0, device="cpu", **few)
    agent.learn(32)
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(np.asarray(action)[()] if np.ndim(action) == 0 else action)


@pytest.mark.slow
def test_stable_baselines_learns_from_attributes() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    env = eldengym.make("Margit-v0", driver="simulator", number_shape=(1,))
    agent = sb3.PPO("MultiInputPolicy", env, n_steps=16, batch_size=16, seed=0, device="cpu").learn(16)
    assert env.action_space.contains(agent.predict(env.reset(seed=0)[0])[0])
