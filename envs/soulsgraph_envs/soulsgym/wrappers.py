"""SoulsGym's `soulsgym.wrappers`."""

from soulsgraph_envs.compat.soulsgym.environments import *  # noqa: F403
