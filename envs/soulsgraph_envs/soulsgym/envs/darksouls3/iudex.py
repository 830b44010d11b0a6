"""SoulsGym's `soulsgym.envs.darksouls3.iudex`."""

from soulsgraph_envs.compat.soulsgym.environments import *  # noqa: F403
