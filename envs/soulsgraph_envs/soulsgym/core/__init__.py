"""SoulsGym's `soulsgym.core`."""

from soulsgraph_envs.soulsgym.core import game_state as game_state
from soulsgraph_envs.soulsgym.core import static as static
