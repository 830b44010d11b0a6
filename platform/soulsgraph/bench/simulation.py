"""`bench sim`: lane ticks of the bare simulator under random controls, resets included."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph.bench.timing import Measurement, interleave
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.controls import ALL_CONTROLS
from soulsgraph_envs.games import make_game
from soulsgraph_envs.state import Raw
from soulsgraph_envs.streams import episode_seeds


class RandomFights:
    """Drive a simulator's lanes with random controls and begin anew where the player or boss is beaten."""

    def __init__(self, lanes: int, scenario: str = "iudex-phase1", seed: int = 0) -> None:
        self.lane_ticks = self.resets = 0
        self._scenario, self._seed = load_scenario(scenario), seed
        self._game = make_game(lanes=lanes)
        random = np.random.default_rng(seed)
        self._controls = random.integers(0, int(ALL_CONTROLS) + 1, (256, lanes), dtype=np.uint32)
        self._reset(np.arange(lanes))

    def run(self, ticks: int) -> None:
        """Advance every lane by so many control ticks."""
        player_hp, player_hp_max, boss_hp = int(Raw.PLAYER_HP), int(Raw.PLAYER_HP_MAX), int(Raw.BOSS_HP)
        for tick in range(ticks):
            raw = self._game.step(self._controls[tick % len(self._controls)])
            dead = raw[:, player_hp] < self._scenario.death_hp_ratio * raw[:, player_hp_max]
            ended = np.flatnonzero(dead | (raw[:, boss_hp] < self._scenario.boss_hp[1]))
            if ended.size:
                self._reset(ended)
        self.lane_ticks += ticks * self._game.lanes

    def _reset(self, lanes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._game.reset(lanes, self._scenario, episode_seeds(self._seed, lanes, self.resets))
        self.resets += len(lanes)


def bench_simulation(lanes: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Measure lane ticks (0.1 s of fight) per CPU second."""
    fights = RandomFights(lanes)
    fights.run(50)
    measurement = Measurement(f"simulator, {lanes} lanes", "lane ticks")

    def contender() -> None:
        with measurement.round(lambda: fights.lane_ticks):
            fights.run(ticks)

    interleave(rounds, [contender])
    measurement.notes["resets"] = fights.resets
    return measurement.to_dict()
