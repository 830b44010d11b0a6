"""Agents written for EldenGym, on our environment with only the import changed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from soulsgraph_envs.compat import eldengym
from soulsgraph_envs.testing import PredictingAgent, check_agent_learns

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
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
        "import sys; from soulsgraph_envs import eldengym; import soulsgraph_envs.compat.eldengym.wrappers; "
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
        ("DQN", "MultiInputPolicy", {}),
    ],
)
def test_stable_baselines_learns_what_pays(algorithm: str, policy: str, options: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env

    check_env(make(**options))
    check_agent_learns(lambda: make(**options, frame_size=(36, 36)), lambda env: learn(algorithm, policy, env))


@pytest.mark.slow
def test_stable_baselines_learns_what_pays_from_attributes() -> None:
    pytest.importorskip("stable_baselines3")

    def make_env() -> gymnasium.Env[Any, Any]:
        return eldengym.make("Margit-v0", driver="simulator", number_shape=(1,))

    check_agent_learns(make_env, lambda env: learn("PPO", "MultiInputPolicy", env))


def learn(algorithm: str, policy: str, env: gymnasium.Env[Any, Any]) -> PredictingAgent:
    import stable_baselines3

    options: dict[str, Any] = {"seed": 0, "gamma": 0.0, "learning_rate": 3e-3, "device": "cpu"}
    if algorithm == "DQN":
        options |= {"buffer_size": 500, "learning_starts": 16, "exploration_fraction": 0.5}
    else:
        options |= {"n_steps": 64}
    agent: PredictingAgent = getattr(stable_baselines3, algorithm)(policy, env, **options).learn(256)
    return agent


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("", "EldenGymEnv AttributeEnv make register list_envs ArenaBoundary BoundaryDistances"),
        ("", "RewardFunction ScoreDeltaReward BossDefeatReward CustomReward EnvSpec EnvRegistry"),
        ("", "client wrappers rewards registry arena_boundary DodgePolicyRewardWrapper"),
        ("", "FrameStack ResizeFrame GrayscaleFrame DictFrameStack DictResizeFrame DictGrayscaleFrame"),
        ("", "NormalizeMemoryAttributes HPRefundWrapper AnimFrameWrapper SDFObsWrapper OOBSafetyWrapper"),
        (".wrappers", "FrameStack ResizeFrame GrayscaleFrame DictFrameStack DictResizeFrame DictGrayscaleFrame"),
        (".wrappers", "NormalizeMemoryAttributes HPRefundWrapper AnimFrameWrapper SDFObsWrapper OOBSafetyWrapper"),
        (".wrappers", "DodgePolicyRewardWrapper"),
        (".rewards", "RewardFunction ScoreDeltaReward BossDefeatReward CustomReward"),
        (".registry", "EnvSpec EnvRegistry registry make register list_envs"),
        (".arena_boundary", "ArenaBoundary BoundaryDistances"),
        (".env", "EldenGymEnv"),
    ],
)
def test_the_originals_names_are_imported_from_here(module: str, names: str) -> None:
    found = importlib.import_module(f"soulsgraph_envs.eldengym{module}")
    assert [name for name in names.split() if not hasattr(found, name)] == []
    for part in filter(None, module.split(".")):
        assert getattr(importlib.import_module("soulsgraph_envs.eldengym"), part) is found


def test_the_originals_clients_are_imported_from_here() -> None:
    pysiphon = pytest.importorskip("pysiphon")
    from soulsgraph_envs.compat.eldengym import EldenClient, SiphonClient, client

    assert client.EldenClient is EldenClient
    assert issubclass(EldenClient, SiphonClient)
    assert issubclass(SiphonClient, pysiphon.SiphonClient)
    assert EldenClient("localhost:1").scenarios["Margit-v0"]["boss_name"] == "Margit"
    for found in (eldengym, client):
        with pytest.raises(AttributeError, match="FromSoftwareClient"):
            _ = found.FromSoftwareClient


class Refund(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A third-party wrapper, which reads and writes the game as EldenGym's own do."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        client = self.unwrapped.client  # type: ignore[attr-defined]
        full = client.get_attribute("HeroMaxHp").get("value", 0)
        if client.get_attribute("HeroHp")["value"] < full:
            client.set_attribute("HeroHp", int(full), "int")
        return observation, reward, terminated, truncated, info | {"hp": client.player_hp}


@pytest.mark.parametrize("made", [make, lambda: eldengym.make("Margit-v0", driver="simulator")])
def test_a_foreign_wrapper_reaches_the_game(made: Any) -> None:
    env = Refund(made())
    env.reset(seed=0)
    client = env.unwrapped.client  # type: ignore[attr-defined]
    client.set_player_hp(1)
    assert env.step(env.action_space.sample() * 0)[4]["hp"] == client.player_max_hp > 1
