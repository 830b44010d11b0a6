"""The environments of other projects, for agents written for them: SoulsGym and EldenGym.

Agents import them as `soulsgraph_envs.soulsgym` and `soulsgraph_envs.eldengym`; either name means the same modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]
_SHORT = tuple(f"{_PACKAGE}.{name}" for name in ("eldengym", "soulsgym"))


class _ShortNames(MetaPathFinder, Loader):
    """Import `soulsgraph_envs.soulsgym.X` as the module `soulsgraph_envs.compat.soulsgym.X`, which is loaded once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a short name, None for every other."""
        short = ".".join(name.split(".")[:2])
        return ModuleSpec(name, self) if short in _SHORT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that a short name means; its own spec is kept for `exec_module`."""
        module = import_module(f"{__name__}{spec.name.removeprefix(_PACKAGE)}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Return its own spec to a module that has run already."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def allow_short_names() -> None:
    """Let both packages be imported without `compat` in their names; a second call changes nothing."""
    if not any(isinstance(finder, _ShortNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ShortNames())
