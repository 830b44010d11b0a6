"""SoulsGym's `soulsgym.core.game_state`."""

from soulsgraph_envs.compat.soulsgym.fight import *  # noqa: F403
