"""SoulsGym's `soulsgym.envs.darksouls3.vordt`."""

from soulsgraph_envs.compat.soulsgym.environments import *  # noqa: F403
