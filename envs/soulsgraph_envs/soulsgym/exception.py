"""SoulsGym's `soulsgym.exception`."""

from soulsgraph_envs.compat.soulsgym.fight import *  # noqa: F403
