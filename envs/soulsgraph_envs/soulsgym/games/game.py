"""SoulsGym's `soulsgym.games.game`."""

from soulsgraph_envs.compat.soulsgym.static import *  # noqa: F403
