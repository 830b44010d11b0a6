"""Where newer SoulsGym has the state of a fight; older has it in `core`."""

from soulsgraph_envs.compat.soulsgym.core.game_state import GameState

__all__ = ["GameState"]
