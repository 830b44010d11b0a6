"""Plan, train, evaluate and adapt agents made of skills.

The names below are the Python interface; each is loaded when it is first used, and what trains only by what trains.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# First: Ray can't be imported by a user without a home before it.
import soulsgraph_envs  # noqa: F401

if TYPE_CHECKING:
    from soulsgraph.api import Run, agents, load, make, open, presets, scenarios, train
    from soulsgraph.runs.plan import Plan
    from soulsgraph.tune.sweep import sweep
    from soulsgraph_envs.core.errors import SoulsGraphError

    __version__: str

__all__ = [
    "Plan",
    "Run",
    "SoulsGraphError",
    "__version__",
    "agents",
    "load",
    "make",
    "open",
    "presets",
    "scenarios",
    "sweep",
    "train",
]
#: The modules of those that are not in `soulsgraph.api`.
_MODULES = {
    "Plan": "soulsgraph.runs.plan",
    "SoulsGraphError": "soulsgraph_envs.core.errors",
    "sweep": "soulsgraph.tune.sweep",
}


def __getattr__(name: str) -> Any:
    """Load a public name, and the module that it is in."""
    if name == "__version__":
        from soulsgraph_envs.core.extras import installed_version

        return installed_version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from soulsgraph.runs.progress import resumable
    from soulsgraph_envs.core.terminal import uninterrupted

    # Numba is imported whole, or never again in this process.
    with resumable(), uninterrupted():
        return getattr(import_module(_MODULES.get(name, "soulsgraph.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
