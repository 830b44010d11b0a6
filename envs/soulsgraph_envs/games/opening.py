"""Every game driver by name; the packages of a real-time one are imported when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.games.cycle_timer import Clock, TimedGame
from soulsgraph_envs.games.link import LINKS, SIMULATOR, GameSettings, Link, check_side_by_side

if TYPE_CHECKING:
    from soulsgraph_envs.games.live_game import LiveGame
    from soulsgraph_envs.simulator import Simulator


def make_game(lanes: int = 1) -> Simulator:
    """Open the simulator with a number of lanes."""
    # Imported here, as below: what only checks settings need not wait for its compiled functions.
    from soulsgraph_envs.simulator import Simulator

    return Simulator(lanes)


def open_game(settings: GameSettings, clock: Clock | None = None) -> TimedGame:
    """Open a game that runs in real time, the simulator among them; raises as `open_live_game` does."""
    if settings.driver == SIMULATOR:
        from soulsgraph_envs.games.live_game import PacedSimulator

        return PacedSimulator(settings.lanes, settings.speed, clock)
    return open_live_game(settings, clock)


def open_live_game(settings: GameSettings, clock: Clock | None = None) -> LiveGame:
    """Open a real-time game, which has a single lane, on this machine's clock or another.

    Raises:
        UnknownNameError: if no real-time driver has that name.
        GameError: if what it needs is not installed.
    """
    # Imported here: on a machine that only simulates, nothing of a game PC need be there.
    from soulsgraph_envs.games.live_game import LiveGame

    return LiveGame(make_link(settings), settings, clock)


def check_games(games: Sequence[GameSettings]) -> None:
    """Refuse games whose settings cannot be used, or that cannot be played from one machine at once.

    No game is attached to: addresses, maps, token files, certificates and displays are checked.

    Raises:
        SoulsGraphError: naming what cannot be used.
    """
    running = [settings for settings in games if settings.driver != SIMULATOR]
    check_side_by_side(running)
    for settings in running:
        make_link(settings).close()


def make_link(settings: GameSettings) -> Link:
    """Make the link to a real-time game, not attached yet; raises as `open_live_game` does."""
    if settings.driver not in LINKS:
        raise UnknownNameError("driver of a real-time game", settings.driver, LINKS)
    module, name = LINKS[settings.driver]
    return cast(Link, getattr(import_module(module), name)(settings))
