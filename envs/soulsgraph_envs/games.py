"""Every game driver by name."""

from __future__ import annotations

from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.game import Game
from soulsgraph_envs.simulator import Simulator

DRIVERS = {"simulator": Simulator}


def make_game(driver: str = "simulator", lanes: int = 1) -> Game:
    """Open a driver with so many lanes.

    Raises:
        UnknownNameError: if no driver has that name.
    """
    if driver not in DRIVERS:
        raise UnknownNameError("game driver", driver, DRIVERS)
    return DRIVERS[driver](lanes)
