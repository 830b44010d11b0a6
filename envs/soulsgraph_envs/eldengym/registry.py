"""EldenGym's own registry of environments, beside Gymnasium's: version 0.6.0 makes its fights by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any

from soulsgraph_envs.eldengym.errors import OptionError, UnknownOptionError

Names = list[str]
EntryPoint = str | Callable[..., Any]
SetupHook = Callable[[Any], object]


class EnvSpec:
    """How one environment is made; `entry_point` is a class, a function or "module:name"."""

    def __init__(
        self,
        id: str,
        entry_point: EntryPoint,
        kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        setup_hook: SetupHook | None = None,
    ) -> None:
        self.id, self.entry_point, self.kwargs = id, entry_point, dict(kwargs or {})
        self.max_episode_steps, self.setup_hook = max_episode_steps, setup_hook

    def make(self, **kwargs: Any) -> Any:
        """Make the environment, then call the hook with it.

        `kwargs` come before those of the specification; `max_episode_steps` is passed on as `max_step`, unless
        another limit is.
        """
        options = {**deepcopy(self.kwargs), **kwargs}
        if self.max_episode_steps is not None and not {"max_step", "max_steps"} & options.keys():
            options["max_step"] = self.max_episode_steps
        env = _callable(self.entry_point)(**options)
        if self.setup_hook is not None:
            self.setup_hook(env)
        return env


class EnvRegistry:
    """Environments by their ids, in the order in which they were registered."""

    def __init__(self) -> None:
        self.env_specs: dict[str, EnvSpec] = {}

    def register(
        self,
        id: str,
        entry_point: EntryPoint,
        kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        setup_hook: SetupHook | None = None,
        force: bool = False,
    ) -> None:
        """Register an environment under `id`; see `EnvSpec`.

        Raises:
            OptionError: if the id is taken and `force` is not given.
        """
        if id in self.env_specs and not force:
            raise OptionError(f"register: expected a free id, found {id!r} taken: choose another or give force=True.")
        self.env_specs[id] = EnvSpec(id, entry_point, kwargs, max_episode_steps, setup_hook)

    def make(self, id: str, **kwargs: Any) -> Any:
        """Make an environment as `EnvSpec.make` does.

        Raises:
            UnknownOptionError: if nothing is registered under `id`.
        """
        if id not in self.env_specs:
            raise UnknownOptionError("environment", id, self.env_specs)
        return self.env_specs[id].make(**kwargs)

    def list(self) -> Names:
        """Return the ids that `make` knows."""
        return [*self.env_specs]


#: The registry of this process.
registry = EnvRegistry()
register, make, list_envs = registry.register, registry.make, registry.list
register("Margit-v0", "soulsgraph_envs.eldengym.attribute_env:AttributeEnv", {"scenario_name": "Margit-v0"})


def _callable(entry_point: EntryPoint) -> Callable[..., Any]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
