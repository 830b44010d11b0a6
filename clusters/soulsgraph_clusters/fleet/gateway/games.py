"""The games that a run plays itself, in a gateway's place: each in a process of this machine, or in a Ray actor.

A thread for each asks its player a few times a second, gives it the task and newer weights, and lets `Admission` write
what it played. An actor plays on any node of a cluster that offers a place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from soulsgraph_clusters.fleet.actor.player import PlayedGame, Player
from soulsgraph_clusters.fleet.actor.process import END_WITHIN_S, GameOrder, GameProcess, Kept
from soulsgraph_clusters.fleet.actor.spool import pause_file
from soulsgraph_clusters.fleet.gateway.admission import ALTERED, RETRY_AFTER_S, Admission, Snapshot
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections, Notes
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import to_bytes
from soulsgraph_clusters.fleet.protocol.settings import SILENT_AFTER_S
from soulsgraph_clusters.sessions.nodes import answer_of, describe_loss
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.projects import LoadedProject, load_installed, loaded_projects, take_over

#: The name of this machine, before that of a game.
HERE = "here"


class ActorPlayer(Player):
    """A player in a Ray actor, which knows the projects that came with it and those that are installed there."""

    def __init__(self, settings: GameSettings, game: str, projects: Sequence[LoadedProject]) -> None:
        load_installed()
        take_over(projects)
        super().__init__(settings, game)


class GameActor:
    """A way to a player in a Ray actor, for which Ray finds a place; its keys come up however it ends."""

    def __init__(
        self, settings: GameSettings, game: str, projects: Sequence[LoadedProject], options: Mapping[str, Any]
    ) -> None:
        self._actor = ray.remote(**options)(ActorPlayer).remote(settings, game, tuple(projects))

    def exchange(self, sent: Sequence[bytes]) -> list[bytes]:
        """Exchange messages with the actor; raises as `PlayedGame`."""
        try:
            answer: list[bytes] = answer_of(self._actor.exchange.remote(sent))
        except RayError as error:
            raise EOFError(describe_loss(error)) from error
        return answer

    def close(self) -> list[bytes]:
        """End the actor, once it has released its game."""
        try:
            last: list[bytes] = ray.get(self._actor.close.remote(), timeout=END_WITHIN_S)
        except (RayError, GetTimeoutError):
            last = []
        self.kill()
        return last

    def kill(self) -> None:
        """End the actor at once."""
        ray.kill(self._actor)


class RunGame(Kept):
    """Keep one of a run's games playing; `name` is that of its PC and its own."""

    def __init__(self, games: RunGames, name: str, open_it: Callable[[], PlayedGame]) -> None:
        self._games, self._name = games, name
        self._connection: Connection | None = None
        #: A bug that ended its thread.
        self.failure: Exception | None = None
        super().__init__(name, open_it, lambda line: games.notes.add(f"{name}: {line}"))

    def _keep(self) -> None:
        try:
            super()._keep()
        except Exception as failure:
            self.failure = failure

    def _play(self) -> None:
        try:
            super()._play()
        finally:
            if (connection := self._connection) is not None:
                connection.close("its process ended")
                self._games.connections.end(connection)
                self._connection = None

    def _sent(self) -> list[bytes]:
        connection, games = self._connection, self._games
        if connection is None:
            return []
        sent = []
        if connection.admitted is None:
            connection.admitted = games.admission
            sent.append(to_bytes(wire.ToGame(task=games.admission.task_for(connection))))
        if (snapshot := games.snapshot) is not None and connection.weights_version != snapshot[0]:
            sent.append(games.admission.weights_message(snapshot, first=connection.weights_version == -1))
            connection.weights_version = snapshot[0]
        return sent

    def _take(self, messages: Sequence[bytes]) -> None:
        chunks = []
        for message in map(wire.FromGame.FromString, messages):
            if message.HasField("hello"):
                hello = message.hello
                hello.pc, _, hello.game = self._name.partition("/")
                self._connection = Connection(hello, time.monotonic())
                self._games.admission.admit(self._connection)
                self._games.connections.begin(self._connection)
                self._games.notes.add(f"{self._name} joined, playing by {hello.driver}")
                continue
            assert self._connection is not None, "a player says hello first"
            if message.HasField("chunk"):
                chunks.append((self._connection, message.chunk))
            elif message.HasField("health"):
                self._games.notes.add_change(self._name, self._connection.health, message.health)
                self._connection.health, self._connection.health_s = message.health, time.monotonic()
        if self._connection is not None:
            self._connection.heard_s, self._connection.closed = time.monotonic(), False
        if chunks:
            self._write(chunks)

    def _write(self, chunks: list[tuple[Connection, wire.Chunk]]) -> None:
        """Write chunks, and try again while that fails: the game plays on, and is not the one that is silent."""
        connection, answers = chunks[0][0], None
        while answers is None:
            try:
                answers = self._games.admission.write(chunks, time.monotonic())
            except SoulsGraphError as error:
                self._games.notes.add(str(error))
                connection.held = True
                if self._stopping.wait(RETRY_AFTER_S):
                    return
        connection.heard_s, connection.held = time.monotonic(), False
        if any(ALTERED in answer.refused for _, answer in answers):
            # It gets all weights anew.
            connection.weights_version = -1
        self._games.appended.set()


class RunGames:
    """Keep a run's games playing one stage: `opens` says by name how each is opened."""

    def __init__(self, admission: Admission, opens: Mapping[str, Callable[[], PlayedGame]]) -> None:
        self.admission = admission
        self.snapshot: Snapshot | None = None
        self.connections, self.notes = Connections(), Notes()
        #: Set whenever something was appended to the journal.
        self.appended = threading.Event()
        self.games = [RunGame(self, name, open_it) for name, open_it in opens.items()]

    def publish(self, version: int, weights: Mapping[str, Weights], decisions: Mapping[str, int]) -> None:
        """Offer modules' weights to every game; the first call names all modules, later ones those that changed."""
        kept = {module: {name: array.copy() for name, array in own.items()} for module, own in weights.items()}
        self.admission.published(version, time.monotonic())
        self.snapshot = version, {**(self.snapshot[1] if self.snapshot else {}), **kept}, dict(decisions)

    def check(self) -> None:
        """Note which games say nothing any more; raises the bug that ended one."""
        for failure in [game.failure for game in self.games if game.failure is not None]:
            raise failure
        for connection in self.connections.live:
            silent_s = time.monotonic() - connection.heard_s
            if silent_s > SILENT_AFTER_S and not connection.held:
                self.notes.add(f"{connection.name}: silent for {SILENT_AFTER_S:g} s")
                connection.reason, connection.closed = f"silent for {SILENT_AFTER_S:g} s", True

    def stop(self, reason: str) -> None:
        """End the games, every key released, and write what they still had."""
        for game in self.games:
            game.stop()
        for game in self.games:
            game.join()


def games_here(games: Sequence[GameSettings], folder: Path) -> dict[str, Callable[[], PlayedGame]]:
    """Return how games of this machine are opened, each in a process; a file in `folder` pauses them."""
    # Installed ones are found there as they were here.
    projects = tuple(one.named.absolute() for one in loaded_projects().values() if one.named is not None)

    def opened(number: int, settings: GameSettings) -> Callable[[], PlayedGame]:
        order = GameOrder(settings, str(number), pause_file(folder), projects)
        return lambda: GameProcess(order)

    return {f"{HERE}/{number}": opened(number, settings) for number, settings in enumerate(games, 1)}


def games_of_cluster(
    games: Sequence[GameSettings], projects: Sequence[LoadedProject], places: Sequence[PlacementGroup]
) -> dict[str, Callable[[], PlayedGame]]:
    """Return how games of a cluster are opened, each in an actor; those beyond the `places` wait for another one."""
    takes = dict(places[0].bundle_specs[0])
    options = {"num_cpus": takes.pop("CPU", 0.0), "resources": takes}

    def opened(settings: GameSettings, place: PlacementGroup | None) -> Callable[[], PlayedGame]:
        strategy = {} if place is None else {"scheduling_strategy": PlacementGroupSchedulingStrategy(place)}
        return lambda: GameActor(settings, "1", projects, {**options, **strategy})

    names = [f"game-pc-{number}/1" for number in range(1, len(games) + 1)]
    return {name: opened(game, place) for name, game, place in zip_longest(names, games, places)}
