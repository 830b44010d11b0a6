"""Every world by the name of its driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.games import DRIVERS, SIMULATOR, make_link
from soulsgraph_envs.live.settings import GameSettings, load_games
from soulsgraph_envs.soulsgym.exception import InvalidGameSettings
from soulsgraph_envs.soulsgym.simulated_world import SimulatedWorld
from soulsgraph_envs.soulsgym.world import World

#: No game keeps up with more.
_FASTEST = 3.0


def make_world(driver: str, games: str | Path | None, game_speed: float, refills: bool) -> World:
    """Open the world of a driver; a running game is the first of the file `games`.

    `game_speed` replaces the speed in that file unless it is 1; the simulator ignores it.

    Raises:
        UnknownNameError: if no driver has that name.
        InvalidGameSettings: for a `games` file of another driver, or a speed that no running game reaches.
    """
    if driver == SIMULATOR and games is not None:
        raise InvalidGameSettings(f"games: expected a driver for {games}, found {driver}: name its driver too.")
    if driver == SIMULATOR:
        return SimulatedWorld()
    if driver not in DRIVERS:
        raise UnknownNameError("game driver", driver, DRIVERS)
    settings = GameSettings(driver=driver) if games is None else load_games(Path(games))[0]
    if settings.driver != driver:
        raise InvalidGameSettings(
            f"{games}: expected a game of driver {driver}, found {settings.driver}: name another."
        )
    if game_speed > _FASTEST:
        raise InvalidGameSettings(
            f"game_speed: expected at most {_FASTEST:g} for a running game, found {game_speed:g}."
        )
    # Imported here: on a machine that only simulates, nothing of a game PC need be there.
    from soulsgraph_envs.soulsgym.live_world import LiveWorld

    if game_speed != 1.0:
        settings = replace(settings, speed=game_speed)
    return LiveWorld(make_link(settings), settings, refills)
