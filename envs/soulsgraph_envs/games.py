"""Every game driver by name; what a real-time one needs is imported when it is opened."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.game import Game
from soulsgraph_envs.live.link import Link
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.simulator import Simulator

#: How a real-time driver reaches its game: module and class of its link.
LINKS = {
    "memory": ("soulsgraph_envs.memory.link", "MemoryLink"),
    "siphon": ("soulsgraph_envs.siphon.link", "SiphonLink"),
}
SIMULATOR = "simulator"
DRIVERS = (SIMULATOR, *LINKS)


def make_game(driver: str = SIMULATOR, lanes: int = 1, settings: GameSettings | None = None) -> Game:
    """Open a driver with so many lanes; a real-time one, which has a single lane, as `settings` say.

    Raises:
        UnknownNameError: if no driver has that name.
        GameError: if a real-time driver is asked for several lanes, or what it needs is not installed.
    """
    if driver == SIMULATOR:
        return Simulator(lanes)
    if driver not in DRIVERS:
        raise UnknownNameError("game driver", driver, DRIVERS)
    if lanes != 1:
        raise GameError(f"driver {driver}: expected 1 lane, found {lanes}: open one driver a game.")
    # Imported here: on a machine that only simulates, nothing of a game PC need be there.
    from soulsgraph_envs.live.game import LiveGame

    found = settings or GameSettings(driver=driver)
    return LiveGame(make_link(found), found)


def make_link(settings: GameSettings) -> Link:
    """Make the link to a real-time game, not attached yet; raises as `make_game` does."""
    if settings.driver not in LINKS:
        raise UnknownNameError("driver of a real-time game", settings.driver, LINKS)
    module, name = LINKS[settings.driver]
    return cast(Link, getattr(import_module(module), name)(settings))
