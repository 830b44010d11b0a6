"""SoulsGym's environments, for agents written for them: on the simulator, or on a running game.

`import soulsgraph_envs.soulsgym as soulsgym` in place of `import soulsgym` is all that changes.
"""

from soulsgraph_envs.soulsgym.game_state import GameState
from soulsgraph_envs.soulsgym.iudex import IudexEnv, IudexEnvDemo, IudexImgEnv
from soulsgraph_envs.soulsgym.souls_env import SoulsEnv, SoulsEnvDemo
from soulsgraph_envs.soulsgym.vordt import VordtEnv

#: The ids under which an agent finds the environments.
available_envs = ("SoulsGymIudex-v0", "SoulsGymIudexImg-v0", "SoulsGymIudexDemo-v0", "SoulsGymVordt-v0")

__all__ = [
    "GameState",
    "IudexEnv",
    "IudexEnvDemo",
    "IudexImgEnv",
    "SoulsEnv",
    "SoulsEnvDemo",
    "VordtEnv",
    "available_envs",
]
