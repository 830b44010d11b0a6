"""SoulsGym's `soulsgym.envs.soulsenv`."""

from soulsgraph_envs.compat.soulsgym.environments import *  # noqa: F403
