"""The EldenGym API: `from soulsgraph_envs import eldengym` in place of `import eldengym`.

`EldenClient` and `SiphonClient` are here too, with the extra `siphon` installed.
"""

import sys
from importlib import import_module
from typing import Any

from soulsgraph_envs.compat.eldengym.env import *  # noqa: F403
from soulsgraph_envs.compat.eldengym.wrappers import *  # noqa: F403


def install() -> None:
    """Make `import eldengym` and its submodules find this package, in this process; one imported before stays."""
    sys.modules.setdefault("eldengym", import_module("soulsgraph_envs.eldengym"))


def __getattr__(name: str) -> Any:
    if name not in ("EldenClient", "SiphonClient"):
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.client"), name)
