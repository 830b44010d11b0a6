"""Play whole episodes greedily, many at once: how every evaluation is done."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat, Controller
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.episodes import Episodes, EpisodeTally


class EpisodePlayer:
    """Play a list of episodes over a combat's lanes; results do not depend on the number of lanes."""

    def __init__(self, combat: Combat, controller: Controller) -> None:
        self._combat, self._controller = combat, controller
        self._skill = combat.position(combat.horizon.skill)
        self._tally = EpisodeTally(combat, combat.horizon.skill)
        self._actions = np.zeros((combat.lanes, len(combat.skills)), np.int64)

    def play(self, seeds: Seeds, on_finished: Callable[[int], None] | None = None) -> Episodes:
        """Play one episode a seed, (n,), and give them in the order of the seeds.

        `on_finished` is told how many episodes ended since it was last called.
        """
        combat = self._combat
        playing = np.full(combat.lanes, -1, np.int64)
        order: list[npt.NDArray[np.int64]] = []
        upcoming = min(combat.lanes, len(seeds))
        self._begin(playing, np.arange(upcoming), np.arange(upcoming), seeds)
        active = playing >= 0
        while active.any():
            self._tick(active)
            ended = np.flatnonzero(active & combat.ended)
            if not ended.size:
                continue
            self._tally.close(ended)
            order.append(playing[ended])
            if on_finished:
                on_finished(len(ended))
            fresh = np.arange(upcoming, min(upcoming + len(ended), len(seeds)))
            upcoming += len(fresh)
            playing[ended] = -1
            self._begin(playing, ended[: len(fresh)], fresh, seeds)
            active = playing >= 0
        return _sorted(self._tally.drain(), np.concatenate(order))

    def _begin(
        self,
        playing: npt.NDArray[np.int64],
        lanes: npt.NDArray[np.int64],
        episodes: npt.NDArray[np.int64],
        seeds: Seeds,
    ) -> None:
        if lanes.size:
            playing[lanes] = episodes
            self._combat.begin(lanes, seeds[episodes])
            self._controller.begin(lanes, seeds[episodes])

    def _tick(self, active: npt.NDArray[np.bool_]) -> None:
        combat = self._combat
        combat.due[~active] = False
        self._controller.act(combat, self._actions)
        combat.step(self._actions, None if active.all() else active)
        over = np.flatnonzero(active & combat.completed[:, self._skill])
        if over.size:
            reward = combat.skills[self._skill].reward
            self._tally.add(over, reward.evaluate(combat.finished(self._skill, over)))


def _sorted(episodes: Episodes, order: npt.NDArray[np.int64]) -> Episodes:
    rank = np.argsort(order, kind="stable")
    return Episodes(**{name: values[rank] for name, values in vars(episodes).items()})
