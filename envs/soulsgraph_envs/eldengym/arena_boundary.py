"""EldenGym's `eldengym.arena_boundary`."""

from soulsgraph_envs.compat.eldengym.wrappers import *  # noqa: F403
