"""SoulsGym's `soulsgym.envs.darksouls3`."""

from soulsgraph_envs.soulsgym.envs.darksouls3 import iudex as iudex
from soulsgraph_envs.soulsgym.envs.darksouls3 import vordt as vordt
