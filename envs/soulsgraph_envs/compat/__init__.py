"""The environments of other projects, for agents written for them: SoulsGym and EldenGym.

Agents import them as `soulsgraph_envs.soulsgym` and `soulsgraph_envs.eldengym`, and each of their modules by the name
that it has there; several of them may be one module here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]
#: Every module that the projects have, and the one here with its names; "" is a package without names of its own.
MODULES = {
    "eldengym": "eldengym",
    "eldengym.arena_boundary": "eldengym.wrappers",
    "eldengym.client": "eldengym.client",
    "eldengym.client.elden_client": "eldengym.client",
    "eldengym.env": "eldengym.env",
    "eldengym.envs": "eldengym.env",
    "eldengym.registry": "eldengym.env",
    "eldengym.rewards": "eldengym.env",
    "eldengym.utils": "eldengym.env",
    "eldengym.wrappers": "eldengym.wrappers",
    "soulsgym": "soulsgym",
    "soulsgym.core": "",
    "soulsgym.core.game_state": "soulsgym.fight",
    "soulsgym.core.static": "soulsgym.static",
    "soulsgym.envs": "",
    "soulsgym.envs.darksouls3": "",
    "soulsgym.envs.darksouls3.iudex": "soulsgym.environments",
    "soulsgym.envs.darksouls3.vordt": "soulsgym.environments",
    "soulsgym.envs.game_state": "soulsgym.fight",
    "soulsgym.envs.soulsenv": "soulsgym.environments",
    "soulsgym.exception": "soulsgym.fight",
    "soulsgym.games": "",
    "soulsgym.games.game": "soulsgym.static",
    "soulsgym.wrappers": "soulsgym.environments",
}


#: The projects whose own names find this package as well.
_installed: set[str] = set()


class _Names(MetaPathFinder, Loader):
    """Import `soulsgraph_envs.soulsgym.X` as the module of this package that has X's names, which is loaded once.

    So does `soulsgym.X` once the project is installed.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a project's module, None for every other."""
        module = name.removeprefix(f"{_PACKAGE}.")
        project = module.partition(".")[0]
        known = project in _installed and name in MODULES if module == name else project in MODULES
        if not known:
            return None
        return ModuleSpec(name, self, is_package=any(other.startswith(f"{module}.") for other in MODULES))

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module with the names, whose own spec is kept for `exec_module`; None for a new, empty one."""
        module_name = spec.name.removeprefix(f"{_PACKAGE}.")
        if module_name == spec.name:
            module = import_module(f"{_PACKAGE}.{module_name}")
        elif ours := MODULES.get(module_name, module_name):
            module = import_module(f"{__name__}.{ours}")
        else:
            return None
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Return its own spec to a module that has run already; an empty one finds what lies below it."""
        assert module.__spec__ is not None
        if module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state
        else:
            module.__dict__["__getattr__"] = partial(submodule, module.__name__.removeprefix(f"{_PACKAGE}."))


def submodule(package: str, name: str) -> ModuleType:
    """Return a project's module as an attribute of its package; raises AttributeError where there is none."""
    if f"{package}.{name}" not in MODULES:
        raise AttributeError(f"module '{_PACKAGE}.{package}' has no attribute {name!r}")
    return import_module(f"{_PACKAGE}.{package}.{name}")


def install(project: str) -> None:
    """Make `import soulsgym`, or another project, and its submodules find this package, in this process.

    Both names mean the same modules, so a class is one class under either. A second call changes nothing, nor does one
    after the project's own package was imported.
    """
    _installed.add(project)


def allow_names() -> None:
    """Let both packages be imported without `compat` in their names; a second call changes nothing."""
    if not any(isinstance(finder, _Names) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Names())
