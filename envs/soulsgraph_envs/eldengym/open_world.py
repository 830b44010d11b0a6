"""Choose the world behind an environment: a Siphon server if there is one, else the simulator, and say so."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from soulsgraph_envs.eldengym.errors import SimulatedGameWarning
from soulsgraph_envs.eldengym.keys import without_effect
from soulsgraph_envs.eldengym.simulated_world import SimulatedWorld
from soulsgraph_envs.eldengym.world import World
from soulsgraph_envs.errors import UnknownNameError

#: "auto" asks whether a server answers; the other two insist.
DRIVERS = ("auto", "simulator", "siphon")
_ANSWER_S = 1.0


@dataclass(frozen=True)
class WorldOptions:
    """The world and its options; with `dry_run` writes to a game are logged instead of done.

    `host` is HOST:PORT, `config` a file of Siphon attributes.
    """

    driver: str
    scenario: str
    host: str
    config: str | None
    frame_size: tuple[int, int]
    dry_run: bool = False


def open_world(options: WorldOptions, keys: Iterable[str]) -> World:
    """Open the world for an environment that uses these keys.

    Raises:
        UnknownNameError: for a driver or a scenario that is not there.
        GameError: with "siphon", if no server answers.
    """
    if options.driver not in DRIVERS:
        raise UnknownNameError("driver", options.driver, DRIVERS)
    if options.driver == "siphon" or (options.driver == "auto" and _answers(options.host)):
        # Imported here: whoever simulates needs no Siphon client.
        from soulsgraph_envs.eldengym.siphon_world import SiphonWorld

        return SiphonWorld(options.scenario, options.host, options.config, options.frame_size, options.dry_run)
    world = SimulatedWorld(options.scenario, options.frame_size)
    if options.driver == "auto":
        _warn(
            f"no Siphon server answers at {options.host}: a simulated boss of our own invention "
            f"({options.scenario}) stands in for Elden Ring's; driver='simulator' chooses it, driver='siphon' insists"
        )
    idle = without_effect(keys, world.supported)
    if idle:
        told = ", ".join(f"{key} ({meaning})" for key, meaning in idle.items())
        _warn(f"the simulated fight has nothing for some keys, which do nothing: {told}")
    return world


def _warn(told: str) -> None:
    # The caller's caller: whoever made the environment.
    warnings.warn(told, SimulatedGameWarning, stacklevel=4)


def _answers(host: str) -> bool:
    name, _, port = host.rpartition(":")
    try:
        with socket.create_connection((name.strip("[]"), int(port)), timeout=_ANSWER_S):
            return True
    except (OSError, ValueError):
        return False
