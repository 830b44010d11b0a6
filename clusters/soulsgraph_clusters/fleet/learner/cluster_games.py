"""A run's games in a Ray cluster, a fleet of the run's own: an actor on each game PC plays one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray

from soulsgraph_clusters.fleet.actor.host import END_WITHIN_S, HostOptions, playing
from soulsgraph_clusters.fleet.protocol.security import Tokens, make_certificates, write_file, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import PC, Fleet, FleetSettings
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.restarting_actor import RestartingActor
from soulsgraph_clusters.sessions.session import Session, find_places
from soulsgraph_envs.core.access import PRIVATE, is_loopback, join_address
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.games.link import GameSettings, load_games, save_game

#: An actor that cannot play is asked again after so long.
_TRY_EVERY_S = 30.0
#: A game's process has its own time to end, and a moment more.
_END_WITHIN_S = END_WITHIN_S + 10.0

_logger = logging.getLogger("soulsgraph")


@contextmanager
def games_of_cluster(file: Path, session: Session, game_pcs: int) -> Iterator[Fleet]:
    """Play the games of a file in a cluster for one run, and yield the fleet that they are.

    Every game is played by a Ray actor on a game PC, a single one by `game_pcs` of them; actors beyond the present game
    PCs wait for further ones. They know the projects that are installed there.

    Raises:
        SoulsGraphError: if the games' file cannot be used.
        ClusterError: if the cluster has no place for a game.
    """
    games = load_games(file)
    if len(games) == 1:
        games *= max(game_pcs, 1)
    _, resources = find_places(len(games), session)
    host = ray.util.get_node_ip_address()
    with temporary_folder("soulsgraph-fleet-") as temporary, ExitStack() as stack:
        # A folder of tokens is locked while they are written; the temporary one is locked by its process already.
        (folder := temporary / "fleet").mkdir(0o700)
        certificate, key, ca = "", "", b""
        if not is_loopback(host):
            made = make_certificates(folder, [host])
            certificate, key, ca = made.certificate.name, made.key.name, made.ca.read_bytes()
        names = [f"game-pc-{number}" for number in range(1, len(games) + 1)]
        pcs = dict.fromkeys(names, PC())
        settings = FleetSettings(join_address(host, free_port(host)), certificate=certificate, key=key, pcs=pcs)
        tokens = Tokens(folder / settings.tokens)
        # A game PC that comes back, or another, takes the place of one that was lost.
        actor = ray.remote(max_restarts=-1, max_concurrency=2, num_cpus=1, resources=resources)(GameHost)
        for name, game in zip(names, games, strict=True):
            own = actor.remote(settings.listen, tokens.issue(name), ca, game)
            stack.callback(RestartingActor(name, own, _TRY_EVERY_S, _END_WITHIN_S).end)
        yield Fleet(settings, folder)


class GameHost:
    """Play one game of a Ray cluster's game PC for the head, in a process of the game's own.

    The game's process ends with the actor, however it ends.
    """

    def __init__(self, head: str, token: str, ca: bytes, game: GameSettings) -> None:
        self._head, self._token, self._ca, self._game = head, token, ca, game
        self._stopped = threading.Event()

    def is_placed(self) -> bool:
        """Return that the actor runs."""
        return True

    def play(self) -> None:
        """Play until `stop`.

        Raises:
            SoulsGraphError: if this machine cannot play the game.
        """
        with temporary_folder("soulsgraph-game-") as folder:
            authority = folder / "ca.pem" if self._ca else None
            if authority is not None:
                write_file(authority, self._ca, PRIVATE)
            write_token_file(folder / "token", self._token)
            save_game(folder / "games.toml", self._game)
            options = HostOptions(self._head, folder / "token", folder / "games.toml", authority, folder / "spool")
            # Ray keeps what is printed in the node's logs.
            with playing(options, print):
                self._stopped.wait()

    def stop(self) -> None:
        """End `play`."""
        self._stopped.set()
