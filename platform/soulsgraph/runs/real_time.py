"""Play episodes in real-time games of this machine, side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.games.cycle_timer import CycleReport, stoppable
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import check_games, make_game, open_live_game
from soulsgraph_policies.agents.agent import Agent

#: Called with the number of episodes that ended since its last call.
OnFinished = Callable[[int], None]


@dataclass(frozen=True)
class PlayedGame:
    """How one game ran: its timing, episodes that were lost and played again, animations that no data file names."""

    timing: CycleReport
    replays: int
    unknown_animations: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self) | {"timing": self.timing.to_dict()}

    def __str__(self) -> str:
        unknown = ", ".join(f"{name} ({ticks} ticks)" for name, ticks in self.unknown_animations.items())
        return f"{self.timing}\n{self.replays} episodes lost and played again; unknown animations: {unknown or 'none'}"


def play_in_games(
    agent: Agent,
    seeds: Seeds,
    games: Sequence[GameSettings],
    on_finished: OnFinished | None = None,
    rollout: Callable[[Game, GameSettings], Rollout] | None = None,
) -> tuple[Episodes, tuple[PlayedGame, ...]]:
    """Play one episode per seed on the games, a thread each; return the episodes in seed order, and how each game ran.

    `rollout` makes the rollout of each game, by default the agent's own.

    Raises:
        GameError: if a game cannot be reached or reset, and the other games stop; if two games share a screen.
    """
    check_games(games)
    # Play a tick of the simulator, so that no compilation delays a running fight.
    agent.rollout(make_game()).play(np.zeros(1, np.uint64), most_ticks=1)
    stop, lock = threading.Event(), threading.Lock()

    def finished(count: int) -> None:
        with lock:
            if on_finished:
                on_finished(count)

    def play_share(share: Seeds, settings: GameSettings) -> tuple[Episodes, PlayedGame]:
        with closing(open_live_game(settings, stoppable(stop))) as game:
            rolled = agent.rollout(game) if rollout is None else rollout(game, settings)
            episodes = rolled.play(share, finished)
            return episodes, PlayedGame(game.report(), rolled.replays, game.unknown_animations())

    shares = [share for share in np.array_split(seeds, len(games)) if len(share)]
    with ThreadPoolExecutor(len(shares)) as pool:
        playing = [pool.submit(play_share, share, settings) for share, settings in zip(shares, games, strict=False)]
        try:
            for future in as_completed(playing):
                future.result()
        finally:
            stop.set()
    parts, reports = zip(*(future.result() for future in playing), strict=True)
    return Episodes.join(parts), reports
