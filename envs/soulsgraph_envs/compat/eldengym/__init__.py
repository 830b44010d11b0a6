"""The EldenGym API: `from soulsgraph_envs import eldengym` in place of `import eldengym`.

`EldenClient` and `SiphonClient` are here too, with the extra `siphon` installed.
"""

from typing import Any

from soulsgraph_envs.compat.eldengym import client
from soulsgraph_envs.compat.eldengym.arena_boundary import ArenaBoundary, BoundaryDistances
from soulsgraph_envs.compat.eldengym.env import AttributeEnv, EldenGymEnv
from soulsgraph_envs.compat.eldengym.registry import EnvRegistry, EnvSpec, list_envs, make, register
from soulsgraph_envs.compat.eldengym.rewards import BossDefeatReward, CustomReward, RewardFunction, ScoreDeltaReward
from soulsgraph_envs.compat.eldengym.wrappers import (
    AnimFrameWrapper,
    DictFrameStack,
    DictGrayscaleFrame,
    DictResizeFrame,
    DodgePolicyRewardWrapper,
    FrameStack,
    GrayscaleFrame,
    HPRefundWrapper,
    NormalizeMemoryAttributes,
    OOBSafetyWrapper,
    ResizeFrame,
    SDFObsWrapper,
)

__all__ = [
    "AnimFrameWrapper",
    "ArenaBoundary",
    "AttributeEnv",
    "BossDefeatReward",
    "BoundaryDistances",
    "CustomReward",
    "DictFrameStack",
    "DictGrayscaleFrame",
    "DictResizeFrame",
    "DodgePolicyRewardWrapper",
    "EldenGymEnv",
    "EnvRegistry",
    "EnvSpec",
    "FrameStack",
    "GrayscaleFrame",
    "HPRefundWrapper",
    "NormalizeMemoryAttributes",
    "OOBSafetyWrapper",
    "ResizeFrame",
    "RewardFunction",
    "SDFObsWrapper",
    "ScoreDeltaReward",
    "list_envs",
    "make",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in ("EldenClient", "SiphonClient"):
        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
