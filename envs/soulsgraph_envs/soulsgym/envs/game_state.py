"""Where newer SoulsGym has the state of a fight; older has it in `core`."""

from soulsgraph_envs.soulsgym.core.game_state import GameState

__all__ = ["GameState"]
