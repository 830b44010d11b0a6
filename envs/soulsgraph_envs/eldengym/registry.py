"""EldenGym's `eldengym.registry`."""

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
