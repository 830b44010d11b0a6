"""The EldenGym API: `from soulsgraph_envs import eldengym` in place of `import eldengym`.

`EldenClient` and `SiphonClient` are here too, with the extra `siphon` installed.
"""

from importlib import import_module
from typing import Any

from soulsgraph_envs.compat import submodule
from soulsgraph_envs.compat.eldengym.env import (
    AttributeEnv,
    BossDefeatReward,
    CustomReward,
    EldenGymEnv,
    EnvRegistry,
    EnvSpec,
    RewardFunction,
    ScoreDeltaReward,
    list_envs,
    make,
    register,
)
from soulsgraph_envs.compat.eldengym.wrappers import (
    AnimFrameWrapper,
    ArenaBoundary,
    BoundaryDistances,
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
        return getattr(import_module(f"{__name__}.client"), name)
    return submodule("eldengym", name)
