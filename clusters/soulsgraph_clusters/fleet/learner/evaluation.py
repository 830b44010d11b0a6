"""Evaluate on a fleet: its games fight by frozen weights, and which fights count is known before they are fought.

The first fights to end are short ones, so the first N that end would not be a fair sample. Counted is every fight that
began before N had ended: those N, and of each lane the one that was under way at that moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from soulsgraph_clusters.fleet.actor.player import PLAY_SHIFT
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import decode_columns
from soulsgraph_clusters.fleet.protocol.settings import Fleet, State
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Journal, StoredChunk
from soulsgraph_envs.combat.rollout import Episodes, Flags
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.agents.inference import Weights

#: The stage's name, as games see it.
STAGE = "evaluate"
#: After this time without play a game has lost the fights it was in.
LOST_AFTER_S = 10.0
#: Chunks read at once, and how long to wait for them.
_MOST_CHUNKS, _LOOK_EVERY_S = 256, 0.25
#: While this machine stood still no game was silent.
_LONGEST_LOOK_S = 1.0

_logger = logging.getLogger("soulsgraph")


@dataclass
class _Game:
    """A game as far as its fights go; `under_way` are the lanes whose last fight that counts has not ended."""

    lanes: int = 0
    played_s: float = -np.inf
    sent_s: float = -np.inf
    play: tuple[str, int] | None = None
    """Its play without a break, as its chunks say: the boot of its process, and which play of it."""
    under_way: set[int] = field(default_factory=set)


class Fights:
    """Choose the fights that count, in the journal's order; times are seconds of one clock.

    A fight that a game loses while it plays on is replaced by the lane's next one. `lost` counts those that were under
    way when `wanted` had ended, and ended with their game.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._games: dict[str, _Game] = {}
        self.counted = self.lost = 0

    def see(self, name: str, lanes: int, now_s: float) -> None:
        """Note that a game plays now."""
        game = self._games.setdefault(name, _Game(sent_s=now_s))
        game.lanes, game.played_s = lanes, now_s

    def take(self, name: str, play: tuple[str, int], lanes: Sequence[int], now_s: float) -> Flags:
        """Return which of a game's next fights count, (n,), from the lanes they were fought in, in order."""
        game = self._games.setdefault(name, _Game())
        if play != game.play and game.play is not None:
            self._lose(game)
        game.play, game.sent_s = play, now_s
        counts = np.zeros(len(lanes), np.bool_)
        for place, lane in enumerate(lanes):
            if self.counted < self._wanted or lane in game.under_way:
                counts[place] = True
                self.counted += 1
                if self.counted == self._wanted:
                    self._begin_last(now_s)
                # Its next fight began when enough had ended.
                game.under_way.discard(lane)
        return counts

    def lose(self, now_s: float, alone_for_s: float) -> None:
        """Wait no longer for games that do not play, or have sent nothing for `alone_for_s`."""
        for game in self._games.values():
            if now_s - game.played_s > LOST_AFTER_S or now_s - game.sent_s > alone_for_s:
                self._lose(game)

    @property
    def under_way(self) -> int:
        """Fights that count and have not ended; none before `wanted` have."""
        return sum(len(game.under_way) for game in self._games.values())

    @property
    def over(self) -> bool:
        """Whether every fight that counts has ended or was lost."""
        return self.counted >= self._wanted and not self.under_way

    def _begin_last(self, now_s: float) -> None:
        for game in self._games.values():
            if now_s - game.played_s <= LOST_AFTER_S:
                game.under_way = set(range(game.lanes))

    def _lose(self, game: _Game) -> None:
        self.lost += len(game.under_way)
        game.under_way = set()


@dataclass(frozen=True)
class FleetGame:
    """A game of a fleet: what it is, how many of its fights counted, and how many of those it won."""

    name: str
    driver: str
    lanes: int
    fights: int
    won: int

    @property
    def title(self) -> str:
        """The game's name and driver."""
        return f"{self.name} ({self.driver}{f' x {self.lanes}' * (self.lanes > 1)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the game as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.title}: {self.fights} fights, {self.won} won"


@dataclass(frozen=True)
class FleetFights:
    """The fights that counted: their episodes, the game of each (n,), every game, and how many were lost at the end."""

    episodes: Episodes
    names: tuple[str, ...]
    games: tuple[FleetGame, ...]
    lost: int


class _StageFights:
    """The fights of a stage as its journal has them."""

    def __init__(self, task: StageTask, wanted: int, on_finished: Callable[[int], None] | None) -> None:
        self._task, self._wanted, self._on_finished = task, wanted, on_finished
        self.fights = Fights(wanted)
        self._described: dict[str, tuple[str, int]] = {}
        self._parts: list[tuple[str, Episodes]] = []

    def see(self, gateway: Gateway, now_s: float) -> None:
        """Note which games play now."""
        for connection in gateway.connections.live:
            self._described[connection.name] = connection.hello.driver, connection.hello.lanes
            if connection.health.state in (State.PLAYING, State.LAST_FIGHT):
                self.fights.see(connection.name, connection.hello.lanes, now_s)

    def take(self, stored: StoredChunk, now_s: float) -> None:
        """Take the fights of a chunk that was not refused."""
        found = decode_columns(Chunk.FromString(stored.content).columns)
        play = int(next(iter(found.transitions.values())).episodes[0]) >> PLAY_SHIFT
        skill = self._task.skills[-1].name
        ended = found.episodes.get(skill)
        name, before = f"{stored.pc}/{stored.game}", self.fights.counted
        lanes = [] if ended is None else ended.lanes.tolist()
        counts = self.fights.take(name, (stored.boot, play), lanes, now_s)
        if ended is None or not counts.any():
            return
        columns = {key: column[counts] for key, column in vars(ended).items() if column is not None}
        self._parts.append((name, replace(ended, **columns)))
        if self._on_finished and before < self._wanted:
            self._on_finished(min(self.fights.counted, self._wanted) - before)
        if before < self._wanted <= self.fights.counted and self.fights.under_way:
            _logger.warning("%s: fights that are under way now count too: %d", STAGE, self.fights.under_way)

    def result(self) -> FleetFights:
        """Return what was collected."""
        episodes = Episodes.join([part for _, part in self._parts])
        names = tuple(name for name, part in self._parts for _ in range(len(part)))
        games = []
        for name in sorted(set(names)):
            won = [bool(part.won[place]) for one, part in self._parts if one == name for place in range(len(part))]
            games.append(FleetGame(name, *self._described.get(name, ("?", 1)), len(won), sum(won)))
        return FleetFights(episodes, names, tuple(games), self.fights.lost)


def play_in_fleet(
    fleet: Fleet,
    task: StageTask,
    weights: Mapping[str, Weights],
    wanted: int,
    on_finished: Callable[[int], None] | None = None,
    seed: int = 0,
) -> FleetFights:
    """Let the games of a fleet play a task by these weights until `wanted` fights have ended, and those under way then.

    Games that draw their fights draw them from `seed`. However it ends, every game gets a stop.

    Raises:
        FleetError: if the head cannot listen, or its tokens or certificate cannot be used.
        SoulsGraphError: if no game plays for the fleet's `alone_for_s`.
    """
    with temporary_folder("soulsgraph-evaluation-") as folder, ExitStack() as open_things:
        journal = Journal(folder / STAGE, STAGE)
        open_things.callback(journal.close)
        admission = Admission(journal, task, int(derive_seeds(seed)[0]), fleet.settings)
        admission.freeze(weights)
        gateway = Gateway(fleet, admission)
        open_things.callback(gateway.stop, "the evaluation is over")
        gateway.publish(1, weights, {})
        collected = _StageFights(task, wanted, on_finished)
        _collect(gateway, journal, collected, fleet.settings.alone_for_s)
        return collected.result()


def _collect(gateway: Gateway, journal: Journal, collected: _StageFights, alone_for_s: float) -> None:
    """Take what the journal holds until every fight that counts is over."""
    fights, position = collected.fights, 0
    now_s = heard_s = 0.0
    looked_s = time.monotonic()
    while not fights.over:
        gateway.check()
        for note in gateway.notes.take():
            _logger.warning("%s: %s", STAGE, note)
        gateway.appended.clear()
        if journal.end <= position:
            gateway.appended.wait(_LOOK_EVERY_S)
        looked_s, before_s = time.monotonic(), looked_s
        now_s += min(looked_s - before_s, _LONGEST_LOOK_S)
        collected.see(gateway, now_s)
        for stored in journal.read(position, _MOST_CHUNKS):
            position += 1
            if not stored.refused:
                heard_s = now_s
                collected.take(stored, now_s)
        if any(connection.health.state in State.PUT_ASIDE for connection in gateway.connections.live):
            heard_s = now_s
        journal.prune(position)
        fights.lose(now_s, alone_for_s)
        if not fights.over and now_s - heard_s > alone_for_s:
            raise SoulsGraphError(
                f"fleet: expected a game that plays, found none for {alone_for_s:g} s; start the hosts on the PCs."
            )
