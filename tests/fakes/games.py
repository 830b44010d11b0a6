"""A game that breaks off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.game import ActiveLanes, Game, LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Controls, RawValues


class LossyGame:
    """A game that breaks off at chosen ticks, and whose resets fail at first, as a real-time one may.

    `losses` maps the number of a step, from 0 on, to the error it raises instead of being carried out;
    the resets after the first one raise `failures`, one each.
    """

    def __init__(self, game: Game, losses: Mapping[int, EpisodeLostError], failures: Sequence[GameError] = ()) -> None:
        self._game, self._losses, self._failures = game, losses, list(failures)
        self.lanes, self.tick_s = game.lanes, game.tick_s
        self.capabilities = replace(game.capabilities, can_render=False)
        self.steps = self.resets = 0
        self.closed = False

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Reset the game, or fail to."""
        self.resets += 1
        if self.resets > 1 and self._failures:
            raise self._failures.pop(0)
        return self._game.reset(lanes, scenario, seeds)

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Step the game, or lose the episode."""
        loss = self._losses.get(self.steps)
        self.steps += 1
        if loss is not None:
            raise loss
        return self._game.step(controls, active)

    def close(self) -> None:
        """Close the game."""
        self.closed = True
        self._game.close()
