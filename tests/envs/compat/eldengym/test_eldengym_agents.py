"""Agents written for EldenGym, on our environment with only the import changed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from soulsgraph_envs import eldengym

pytestmark = [
    pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning"),
]


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
