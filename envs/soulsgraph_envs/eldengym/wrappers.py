"""EldenGym's `eldengym.wrappers`."""

from soulsgraph_envs.compat.eldengym.wrappers import *  # noqa: F403
