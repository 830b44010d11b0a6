"""SoulsGym's environments, for agents written for them: on the simulator, or on a running game.

`import soulsgraph_envs.soulsgym as soulsgym` in place of `import soulsgym` is all that changes; `install`
makes even that unnecessary.
"""

import logging
import sys
from importlib import import_module

from soulsgraph_envs.compat.soulsgym.environments import IudexEnv as IudexEnv
from soulsgraph_envs.compat.soulsgym.environments import IudexEnvDemo as IudexEnvDemo
from soulsgraph_envs.compat.soulsgym.environments import IudexImgEnv as IudexImgEnv
from soulsgraph_envs.compat.soulsgym.environments import SoulsEnv as SoulsEnv
from soulsgraph_envs.compat.soulsgym.environments import SoulsEnvDemo as SoulsEnvDemo
from soulsgraph_envs.compat.soulsgym.environments import VordtEnv as VordtEnv
from soulsgraph_envs.compat.soulsgym.fight import GameState as GameState
from soulsgraph_envs.compat.soulsgym.fight import SoulsGymException as SoulsGymException

#: The ids under which an agent finds the environments.
available_envs = ["SoulsGymIudex-v0", "SoulsGymIudexImg-v0", "SoulsGymIudexDemo-v0", "SoulsGymVordt-v0"]


def set_log_level(level: int) -> None:
    """Set the level, one of the standard library's `logging`, from which the environments and drivers log."""
    logging.getLogger("soulsgraph_envs").setLevel(level)


def install() -> None:
    """Make `import soulsgym` and its submodules find this package, in this process; one imported before stays."""
    sys.modules.setdefault("soulsgym", import_module("soulsgraph_envs.soulsgym"))
