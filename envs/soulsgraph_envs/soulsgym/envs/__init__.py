"""SoulsGym's `soulsgym.envs`."""

from soulsgraph_envs.soulsgym.envs import darksouls3 as darksouls3
from soulsgraph_envs.soulsgym.envs import game_state as game_state
from soulsgraph_envs.soulsgym.envs import soulsenv as soulsenv
