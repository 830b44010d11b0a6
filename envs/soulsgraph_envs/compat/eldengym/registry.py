"""EldenGym's own registry of environments, beside Gymnasium's: version 0.6.0 makes its fights by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from soulsgraph_envs.compat.eldengym.errors import OptionError, UnknownOptionError

Names = list[str]
EntryPoint = str | Callable[..., Any]
SetupHook = Callable[[Any], object]


@dataclass(eq=False)
class EnvSpec:
    """How one environment is made; `entry_point` is a class, a function or "module:name"."""

    id: str
    entry_point: EntryPoint
    kwargs: Mapping[str, Any] | None = None
    max_episode_steps: int | None = None
    setup_hook: SetupHook | None = None

    def __post_init__(self) -> None:
        self.kwargs = dict(self.kwargs or {})

    def make(self, **kwargs: Any) -> Any:
        """Make the environment, then call the hook with it.

        `kwargs` come before those of the specification; `max_episode_steps` is passed on as `max_step`, unless
        another limit is.
        """
        options = {**deepcopy(self.kwargs or {}), **kwargs}
        if self.max_episode_steps is not None and not {"max_step", "max_steps"} & options.keys():
            options["max_step"] = self.max_episode_steps
        made = resolve_name(self.entry_point) if isinstance(self.entry_point, str) else self.entry_point
        env = made(**options)
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
register("Margit-v0", "soulsgraph_envs.compat.eldengym.env:AttributeEnv", {"scenario_name": "Margit-v0"})
