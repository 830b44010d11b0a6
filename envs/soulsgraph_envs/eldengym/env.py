"""EldenGym's `eldengym.env`."""

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
