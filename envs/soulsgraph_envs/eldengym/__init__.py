"""EldenGym's `eldengym`."""

from importlib import import_module

from soulsgraph_envs.compat.eldengym import *  # noqa: F403
from soulsgraph_envs.compat.eldengym import __getattr__ as __getattr__
from soulsgraph_envs.eldengym import arena_boundary as arena_boundary
from soulsgraph_envs.eldengym import env as env
from soulsgraph_envs.eldengym import envs as envs
from soulsgraph_envs.eldengym import rewards as rewards
from soulsgraph_envs.eldengym import utils as utils
from soulsgraph_envs.eldengym import wrappers as wrappers

#: The module, which has a registry of the same name.
registry = import_module("soulsgraph_envs.eldengym.registry")  # type: ignore[assignment]
