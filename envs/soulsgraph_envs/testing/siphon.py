"""For tests: a stand-in game behind a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.siphon.server import LastingStandIn, Serving, SiphonServer


class Served(NamedTuple):
    """A stand-in, its serving options and server, and the settings of a link to it."""

    game: LastingStandIn
    serving: Serving
    server: SiphonServer
    settings: GameSettings


@contextmanager
def served_stand_in(serving: Serving, options: StandInOptions) -> Iterator[Served]:
    """Run a stand-in and serve it."""
    with LastingStandIn(options) as game:
        server = SiphonServer(serving, game.pid, captured_slots=True)
        try:
            settings = GameSettings(driver="siphon", host=server.address, map=options.map)
            yield Served(game, serving, server, settings)
        finally:
            server.close()
