"""A stand-in behind a Siphon server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.standin.launch import ServingOptions, StandInOptions, StandInProcess
from soulsgraph_envs.games.standin.siphon_server import SiphonServer


class ServedStandIn(NamedTuple):
    """A stand-in, its serving options and server, and the settings of a link to it."""

    game: StandInProcess
    serving: ServingOptions
    server: SiphonServer
    settings: GameSettings


@contextmanager
def served_stand_in(serving: ServingOptions, options: StandInOptions) -> Iterator[ServedStandIn]:
    """Run a stand-in behind a server while the context lasts."""
    with StandInProcess(options) as game, closing(SiphonServer(serving, game.living_pid, True)) as server:
        yield ServedStandIn(game, serving, server, GameSettings(driver="siphon", host=server.address, map=options.map))
