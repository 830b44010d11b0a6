"""EldenGym's `eldengym.rewards`."""

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
