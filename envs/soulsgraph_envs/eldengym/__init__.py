"""The EldenGym API: `from soulsgraph_envs import eldengym` in place of `import eldengym`."""

from soulsgraph_envs.eldengym.arena_boundary import ArenaBoundary
from soulsgraph_envs.eldengym.attribute_env import AttributeEnv
from soulsgraph_envs.eldengym.env import EldenGymEnv
from soulsgraph_envs.eldengym.registry import list_envs, make, register
from soulsgraph_envs.eldengym.rewards import BossDefeatReward, CustomReward, RewardFunction, ScoreDeltaReward
from soulsgraph_envs.eldengym.wrappers import (
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
    "CustomReward",
    "DictFrameStack",
    "DictGrayscaleFrame",
    "DictResizeFrame",
    "DodgePolicyRewardWrapper",
    "EldenGymEnv",
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
