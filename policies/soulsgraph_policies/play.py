"""Play whole episodes greedily, many at once: how every evaluation is done."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat, Controller
from soulsgraph_envs.errors import EpisodeLostError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.streams import Seeds
from soulsgraph_policies.episodes import Episodes, EpisodeTally

#: An episode that a real-time game loses is played again, but not more often than this.
MOST_REPLAYS = 5

_logger = logging.getLogger("soulsgraph")


class EpisodePlayer:
    """Play a list of episodes over a combat's lanes; results do not depend on the number of lanes.

    An episode that a real-time game breaks off is played again from its seed; `replays` counts them.
    """

    def __init__(self, combat: Combat, controller: Controller) -> None:
        self._combat, self._controller = combat, controller
        self._skill = combat.position(combat.horizon.skill)
        self._tally = EpisodeTally(combat, combat.horizon.skill)
        self._actions = np.zeros((combat.lanes, len(combat.skills)), np.int64)
        self.replays = 0

    def play(self, seeds: Seeds, on_finished: Callable[[int], None] | None = None) -> Episodes:
        """Play one episode a seed, (n,), and give them in the order of the seeds.

        `on_finished` is told how many episodes ended since it was last called.

        Raises:
            EpisodeLostError: if a real-time game breaks off the same episode again and again.
            GameError: if a real-time game cannot be reset.
        """
        combat, losses = self._combat, 0
        playing = np.full(combat.lanes, -1, np.int64)
        order: list[npt.NDArray[np.int64]] = []
        upcoming = min(combat.lanes, len(seeds))
        playing[:upcoming] = np.arange(upcoming)
        fresh = np.arange(upcoming)
        active = playing >= 0
        while active.any():
            try:
                self._begin(fresh, playing, seeds)
                fresh = fresh[:0]
                self._tick(active)
            except EpisodeLostError as loss:
                losses += 1
                if losses > MOST_REPLAYS:
                    raise
                fresh = self._lose(playing, loss)
                continue
            ended = np.flatnonzero(active & combat.ended)
            if not ended.size:
                continue
            losses = 0
            self._tally.close(ended)
            order.append(playing[ended])
            if on_finished:
                on_finished(len(ended))
            following = np.arange(upcoming, min(upcoming + len(ended), len(seeds)))
            upcoming += len(following)
            fresh = ended[: len(following)]
            playing[ended] = -1
            playing[fresh] = following
            active = playing >= 0
        return _sorted(self._tally.drain(), np.concatenate(order))

    def _begin(self, lanes: LaneIndices, playing: npt.NDArray[np.int64], seeds: Seeds) -> None:
        if lanes.size:
            self._combat.begin(lanes, seeds[playing[lanes]])
            self._controller.begin(lanes, seeds[playing[lanes]])

    def _lose(self, playing: npt.NDArray[np.int64], loss: EpisodeLostError) -> LaneIndices:
        """Forget the episodes under way, and give their lanes to begin again."""
        _logger.warning("episode lost, played again: %s", loss.reason)
        self.replays += 1
        lanes = np.flatnonzero(playing >= 0)
        self._tally.sums[lanes] = 0.0
        return lanes

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
