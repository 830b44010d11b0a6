"""Evaluate an agent in real-time games: several side by side, each its share of the episodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from soulsgraph.judging import OnFinished
from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.games import check_games, make_game, open_live_game
from soulsgraph_envs.live.clock import stoppable
from soulsgraph_envs.live.cycle_timer import CycleReport
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.agent import Agent


@dataclass(frozen=True)
class PlayedGame:
    """How one game went: its timing, episodes that were lost and played again, animations no data name."""

    timing: CycleReport
    replays: int
    unknown_animations: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "timing": self.timing.to_dict(),
            "replays": self.replays,
            "unknown_animations": dict(self.unknown_animations),
        }

    def __str__(self) -> str:
        unknown = ", ".join(f"{name} ({ticks} ticks)" for name, ticks in self.unknown_animations.items())
        return f"{self.timing}\n{self.replays} episodes lost and played again; unknown animations: {unknown or 'none'}"


def play_in_games(
    agent: Agent, seeds: Seeds, games: Sequence[GameSettings], on_finished: OnFinished | None = None
) -> tuple[Episodes, tuple[PlayedGame, ...]]:
    """Play one episode a seed over the games, a thread each: the episodes in the order of the seeds, and how it went.

    Raises:
        GameError: if a game cannot be reached or reset, and the other games stop; if two games share a screen.
    """
    check_games(games)
    _warm_up(agent)
    stop, lock = threading.Event(), threading.Lock()

    def finished(count: int) -> None:
        with lock:
            if on_finished:
                on_finished(count)

    shares = [share for share in np.array_split(seeds, len(games)) if len(share)]
    with ThreadPoolExecutor(len(shares)) as pool:
        playing = [
            pool.submit(_play, agent, share, settings, stop, finished)
            for share, settings in zip(shares, games, strict=False)
        ]
        try:
            done, _ = wait(playing, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            stop.set()
    parts, reports = zip(*(future.result() for future in playing), strict=True)
    return Episodes.join(parts), reports


def _warm_up(agent: Agent) -> None:
    """Play a tick of the simulator: what is compiled at its first use must not hold up a running fight."""
    agent.rollout(make_game()).play(np.zeros(1, np.uint64), most_ticks=1)


def _play(
    agent: Agent, seeds: Seeds, settings: GameSettings, stop: threading.Event, finished: OnFinished
) -> tuple[Episodes, PlayedGame]:
    game = open_live_game(settings, stoppable(stop))
    try:
        rollout = agent.rollout(game)
        episodes = rollout.play(seeds, finished)
        return episodes, PlayedGame(game.report(), rollout.replays, game.unknown_animations())
    finally:
        game.close()
