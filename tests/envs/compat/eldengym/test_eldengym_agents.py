"""Agents written for EldenGym, on our environment with only the import changed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from soulsgraph_envs import eldengym

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]


def test_importing_it_loads_no_learning_library_and_no_client() -> None:
    code = (
        "import sys; from soulsgraph_envs import eldengym; import soulsgraph_envs.compat.eldengym.wrappers; "
        "eldengym.make('Margit-v0', driver='simulator').reset(seed=0); "
        "print([name for name in ('torch', 'ray', 'grpc', 'pysiphon', 'Xlib', 'pygame') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"observation_mode": "rgb"}, {}, {"action_mode": "multi_binary"}])
def test_stable_baselines_accepts_it(options: dict[str, Any]) -> None:
    env = gymnasium.make("EldenGym-v0", scenario_name="margit", driver="simulator", **options)
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(env)


def test_the_originals_names_are_imported_from_here() -> None:
    pictures = "FrameStack ResizeFrame GrayscaleFrame DictFrameStack DictResizeFrame DictGrayscaleFrame"
    others = "NormalizeMemoryAttributes HPRefundWrapper AnimFrameWrapper SDFObsWrapper OOBSafetyWrapper"
    names = {
        "wrappers": f"{pictures} {others} DodgePolicyRewardWrapper",
        "rewards": "RewardFunction ScoreDeltaReward BossDefeatReward CustomReward",
        "registry": "EnvSpec EnvRegistry make register list_envs",
        "arena_boundary": "ArenaBoundary BoundaryDistances",
        "envs": "EldenGymEnv register",
    }
    package = importlib.import_module("soulsgraph_envs.eldengym")
    for module, listed in names.items():
        found = importlib.import_module(f"soulsgraph_envs.eldengym.{module}")
        assert getattr(package, module) is found
        assert [name for name in listed.split() if getattr(found, name) is not getattr(package, name)] == []
    assert importlib.import_module("soulsgraph_envs.eldengym.env").EldenGymEnv is package.EldenGymEnv
    assert package.AttributeEnv
    resolved = importlib.import_module("soulsgraph_envs.eldengym.utils").resolve_file_path
    assert resolved("keys.json", relative_to_package=False) == Path("keys.json").resolve()
    assert resolved("files/keys.json").parts[-3:] == ("eldengym", "files", "keys.json")
    assert resolved(Path("keys.json").resolve()) == Path("keys.json").resolve()


def test_the_originals_clients_are_imported_from_here() -> None:
    pysiphon = pytest.importorskip("pysiphon")
    from soulsgraph_envs.compat.eldengym import EldenClient, SiphonClient, client

    assert client.EldenClient is EldenClient
    assert issubclass(EldenClient, SiphonClient)
    assert issubclass(SiphonClient, pysiphon.SiphonClient)
    assert importlib.import_module("soulsgraph_envs.eldengym.client.elden_client").EldenClient is EldenClient
    assert EldenClient("localhost:1").scenarios["Margit-v0"]["boss_name"] == "Margit"
    for found in (eldengym, client):
        with pytest.raises(AttributeError, match="FromSoftwareClient"):
            _ = found.FromSoftwareClient
