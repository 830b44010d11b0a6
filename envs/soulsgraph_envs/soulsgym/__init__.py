"""SoulsGym's `soulsgym`."""

from soulsgraph_envs.compat.soulsgym import *  # noqa: F403
from soulsgraph_envs.soulsgym import core as core
from soulsgraph_envs.soulsgym import envs as envs
from soulsgraph_envs.soulsgym import exception as exception
from soulsgraph_envs.soulsgym import games as games
