"""SoulsGym's `soulsgym.games`."""

from soulsgraph_envs.soulsgym.games import game as game
