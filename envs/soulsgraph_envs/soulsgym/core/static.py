"""SoulsGym's `soulsgym.core.static`."""

from soulsgraph_envs.compat.soulsgym.static import *  # noqa: F403
