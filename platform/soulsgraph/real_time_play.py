"""Judge an agent in real-time games: several side by side, each its share of the episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Protocol

import numpy as np

from soulsgraph_envs.combat import Combat, Controller, Horizon
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.games import make_game
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.episodes import Episodes
from soulsgraph_policies.play import EpisodePlayer


class Fighters(Protocol):
    """Who fights where: the part of a match that a single game needs."""

    @property
    def scenario(self) -> Scenario:
        """Where they fight."""
        ...

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that fight; the last one's horizon counts."""
        ...

    def controller(self, lanes: int) -> Controller:
        """Make the agent for so many lanes."""
        ...


class _StoppedError(SoulsGraphError):
    """Another game failed, or a person stopped the judging."""


class _Stoppable:
    """A controller that ends its game's play at the next tick once `stop` is set."""

    def __init__(self, controller: Controller, stop: threading.Event) -> None:
        self._controller, self._stop = controller, stop

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Pass on that an episode begins."""
        self._controller.begin(lanes, seeds)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Let the controller act, unless play is to stop."""
        if self._stop.is_set():
            raise _StoppedError("judging was stopped.")
        self._controller.act(combat, actions)


def play_in_games(
    match: Fighters, seeds: Seeds, games: Sequence[GameSettings], on_finished: Callable[[int], None] | None = None
) -> Episodes:
    """Play one episode a seed over the games, a thread each, and give them in the order of the seeds.

    Raises:
        GameError: if a game cannot be reached or reset; the other games stop.
    """
    stop, lock = threading.Event(), threading.Lock()

    def finished(count: int) -> None:
        with lock:
            if on_finished:
                on_finished(count)

    shares = [share for share in np.array_split(seeds, len(games)) if len(share)]
    with ThreadPoolExecutor(len(shares)) as pool:
        playing = [
            pool.submit(_play, match, share, settings, stop, finished)
            for share, settings in zip(shares, games, strict=False)
        ]
        try:
            return Episodes.join(_first_failure_first(playing))
        finally:
            stop.set()


def _first_failure_first(playing: Sequence[Future[Episodes]]) -> list[Episodes]:
    done, _ = wait(playing, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
    return [future.result() for future in playing]


def _play(
    match: Fighters, seeds: Seeds, settings: GameSettings, stop: threading.Event, finished: Callable[[int], None]
) -> Episodes:
    game = make_game(settings.driver, 1, settings)
    try:
        last = match.skills[-1]
        combat = Combat(game, match.skills, match.scenario, Horizon(last.name, last.horizon))
        return EpisodePlayer(combat, _Stoppable(match.controller(1), stop)).play(seeds, finished)
    finally:
        game.close()
