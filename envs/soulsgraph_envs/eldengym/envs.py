"""EldenGym's `eldengym.envs`."""

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
