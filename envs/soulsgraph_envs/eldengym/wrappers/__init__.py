"""EldenGym's wrappers, as version 0.6.0 names them."""

from soulsgraph_envs.eldengym.wrappers.attributes import (
    AnimFrameWrapper,
    DodgePolicyRewardWrapper,
    HPRefundWrapper,
    NormalizeMemoryAttributes,
    OOBSafetyWrapper,
    SDFObsWrapper,
)
from soulsgraph_envs.eldengym.wrappers.frames import (
    DictFrameStack,
    DictGrayscaleFrame,
    DictResizeFrame,
    FrameStack,
    GrayscaleFrame,
    ResizeFrame,
)

__all__ = [
    "AnimFrameWrapper",
    "DictFrameStack",
    "DictGrayscaleFrame",
    "DictResizeFrame",
    "DodgePolicyRewardWrapper",
    "FrameStack",
    "GrayscaleFrame",
    "HPRefundWrapper",
    "NormalizeMemoryAttributes",
    "OOBSafetyWrapper",
    "ResizeFrame",
    "SDFObsWrapper",
]
