"""EldenGym's `eldengym.utils`."""

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
