"""Which distribution installed this code: the whole, or the one for game PCs, which lacks what only training needs.

Both hold the same files, of the same tree; they differ in what is installed with them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import distributions

WHOLE, HOST = "soulsgraph", "soulsgraph-host"
#: The group of entry points by which an installed package offers a project of skills and graphs.
PROJECTS = "soulsgraph.projects"


def installed(path: Sequence[str] | None = None) -> dict[str, str]:
    """Return our distributions that lie on a path, by default Python's own, each with its version."""
    places = [*(sys.path if path is None else path)]
    found = {name: next(iter(distributions(name=name, path=places)), None) for name in (WHOLE, HOST)}
    return {name: one.version for name, one in found.items() if one is not None}


def is_host(path: Sequence[str] | None = None) -> bool:
    """Return whether only the distribution for game PCs is installed."""
    return set(installed(path)) == {HOST}


def pip_install(extra: str) -> str:
    """Return the command that installs an extra of the distribution that is installed."""
    return f"pip install '{HOST if is_host() else WHOLE}[{extra}]'"
