"""EldenGym's own registry of environments, beside Gymnasium's: version 0.6.0 makes its fights by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from soulsgraph_envs.eldengym.errors import OptionError
from soulsgraph_envs.errors import UnknownNameError

AnyEnv = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class _Entry:
    """How one environment is made; `entry_point` is a class, a function or "module:name"."""

    entry_point: str | Callable[..., AnyEnv]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    setup_hook: Callable[[], object] | None = None


_REGISTRY: dict[str, _Entry] = {
    "Margit-v0": _Entry("soulsgraph_envs.eldengym.attribute_env:AttributeEnv", {"scenario_name": "margit"})
}


def register(
    id: str,
    entry_point: str | Callable[..., AnyEnv],
    kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    setup_hook: Callable[[], object] | None = None,
    force: bool = False,
) -> None:
    """Register an environment under `id`; `setup_hook` runs before each is made.

    Raises:
        OptionError: if the id is taken and `force` is not given.
    """
    if id in _REGISTRY and not force:
        raise OptionError(f"register: expected a free id, found {id!r} taken: choose another or give force=True.")
    _REGISTRY[id] = _Entry(entry_point, dict(kwargs or {}), max_episode_steps, setup_hook)


def make(id: str, **kwargs: Any) -> AnyEnv:
    """Make an environment; `kwargs` come before those of its registration.

    Raises:
        UnknownNameError: if nothing is registered under `id`.
    """
    if id not in _REGISTRY:
        raise UnknownNameError("environment", id, _REGISTRY)
    entry = _REGISTRY[id]
    if entry.setup_hook is not None:
        entry.setup_hook()
    env = _callable(entry.entry_point)(**{**entry.kwargs, **kwargs})
    return env if entry.max_episode_steps is None else TimeLimit(env, entry.max_episode_steps)


def list_envs() -> list[str]:
    """Name what `make` makes."""
    return sorted(_REGISTRY)


def _callable(entry_point: str | Callable[..., AnyEnv]) -> Callable[..., AnyEnv]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    found: Callable[..., AnyEnv] = getattr(import_module(module), name)
    return found
