"""SoulsGym's environments, for agents written for them: on the simulator, or on a running game.

`import soulsgraph_envs.soulsgym as soulsgym` in place of `import soulsgym` is all that changes; `install`
makes even that unnecessary.
"""

import logging
import sys
from importlib import import_module

from soulsgraph_envs.compat.soulsgym.environments import *  # noqa: F403
from soulsgraph_envs.compat.soulsgym.fight import *  # noqa: F403

#: The ids under which an agent finds the environments.
available_envs = ["SoulsGymIudex-v0", "SoulsGymIudexImg-v0", "SoulsGymIudexDemo-v0", "SoulsGymVordt-v0"]


def set_log_level(level: int) -> None:
    """Set the level, one of the standard library's `logging`, from which the environments and drivers log."""
    logging.getLogger("soulsgraph_envs").setLevel(level)


def install() -> None:
    """Make `import soulsgym` and its submodules find this package, in this process; one imported before stays."""
    sys.modules.setdefault("soulsgym", import_module("soulsgraph_envs.soulsgym"))
