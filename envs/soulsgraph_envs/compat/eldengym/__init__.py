"""The EldenGym API: `from soulsgraph_envs import eldengym` in place of `import eldengym`.

`EldenClient` and `SiphonClient` are here too, with the extra `siphon` installed.
"""

import sys
from importlib import import_module
from typing import Any

from soulsgraph_envs.compat.eldengym.env import AttributeEnv as AttributeEnv
from soulsgraph_envs.compat.eldengym.env import BossDefeatReward as BossDefeatReward
from soulsgraph_envs.compat.eldengym.env import CustomReward as CustomReward
from soulsgraph_envs.compat.eldengym.env import EldenGymEnv as EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import EnvRegistry as EnvRegistry
from soulsgraph_envs.compat.eldengym.env import EnvSpec as EnvSpec
from soulsgraph_envs.compat.eldengym.env import RewardFunction as RewardFunction
from soulsgraph_envs.compat.eldengym.env import ScoreDeltaReward as ScoreDeltaReward
from soulsgraph_envs.compat.eldengym.env import list_envs as list_envs
from soulsgraph_envs.compat.eldengym.env import make as make
from soulsgraph_envs.compat.eldengym.env import register as register
from soulsgraph_envs.compat.eldengym.wrappers import AnimFrameWrapper as AnimFrameWrapper
from soulsgraph_envs.compat.eldengym.wrappers import ArenaBoundary as ArenaBoundary
from soulsgraph_envs.compat.eldengym.wrappers import BoundaryDistances as BoundaryDistances
from soulsgraph_envs.compat.eldengym.wrappers import DictFrameStack as DictFrameStack
from soulsgraph_envs.compat.eldengym.wrappers import DictGrayscaleFrame as DictGrayscaleFrame
from soulsgraph_envs.compat.eldengym.wrappers import DictResizeFrame as DictResizeFrame
from soulsgraph_envs.compat.eldengym.wrappers import DodgePolicyRewardWrapper as DodgePolicyRewardWrapper
from soulsgraph_envs.compat.eldengym.wrappers import FrameStack as FrameStack
from soulsgraph_envs.compat.eldengym.wrappers import GrayscaleFrame as GrayscaleFrame
from soulsgraph_envs.compat.eldengym.wrappers import HPRefundWrapper as HPRefundWrapper
from soulsgraph_envs.compat.eldengym.wrappers import NormalizeMemoryAttributes as NormalizeMemoryAttributes
from soulsgraph_envs.compat.eldengym.wrappers import OOBSafetyWrapper as OOBSafetyWrapper
from soulsgraph_envs.compat.eldengym.wrappers import ResizeFrame as ResizeFrame
from soulsgraph_envs.compat.eldengym.wrappers import SDFObsWrapper as SDFObsWrapper


def install() -> None:
    """Make `import eldengym` and its submodules find this package, in this process; one imported before stays."""
    sys.modules.setdefault("eldengym", import_module("soulsgraph_envs.eldengym"))


def __getattr__(name: str) -> Any:
    if name not in ("EldenClient", "SiphonClient"):
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.client"), name)
