"""One skill as the agent and everything else inside: the core of the Gymnasium faces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat, Controller, Horizon
from soulsgraph_envs.game import Game, LaneIndices
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import Seeds, derive_seeds

Floats = npt.NDArray[np.float32]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
_RETRY_STREAM = 2


def practice_ground(scenario: Scenario, skill: Skill) -> Scenario:
    """Give the scenario as the skill trains on it: its start, and HP refilled where nobody may die."""
    return replace(scenario, start=skill.practice.start, refill=skill.practice.refill)


@dataclass(frozen=True)
class Outcome:
    """What one decision of every lane led to; arrays over lanes, `terms` (lanes, reward terms)."""

    observations: Floats
    rewards: Floats
    terms: Floats
    terminated: Booleans
    truncated: Booleans
    won: Booleans
    died: Booleans
    #: Game time of each lane's episode so far, (lanes,).
    seconds: npt.NDArray[np.float64]


class SkillTask:
    """Let an agent decide for one skill while `controller` plays the upstream skills.

    A lane that has finished its decision stands still until every lane has: a game that can pause
    takes many lanes, any other takes one.
    """

    def __init__(
        self, game: Game, skill: Skill, upstream: Sequence[Skill], controller: Controller | None, scenario: Scenario
    ) -> None:
        self.skill = skill
        self.combat = Combat(game, (*upstream, skill), scenario, Horizon(skill.name, skill.horizon))
        self._controller = controller
        self._position = len(upstream)
        self._actions = np.zeros((game.lanes, len(upstream) + 1), np.int64)
        #: Called after every control tick.
        self.after_tick: Callable[[], None] | None = None

    @property
    def observations(self) -> Floats:
        """What the skill observes now, (lanes, size)."""
        return self.skill.observation(self.combat.rows, self.combat.scenario)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin episodes in `lanes` (n,) and run each to the skill's first decision."""
        self._begin(lanes, seeds)
        while True:
            waiting = np.zeros(self.combat.lanes, np.bool_)
            waiting[lanes] = ~self.combat.due[lanes, self._position]
            if not waiting.any():
                return
            self._tick(waiting)
            # An episode lost before the skill ever decided teaches it nothing: begin another.
            lost = np.flatnonzero(self.combat.ended & waiting)
            if lost.size:
                again = derive_seeds(seeds[np.searchsorted(lanes, lost)], _RETRY_STREAM)
                self._begin(lost, again)

    def decide(self, actions: Integers) -> Outcome:
        """Carry out one decision in every lane, `actions` (lanes,), to its end or the episode's.

        Raises:
            ActionError: for an action that the skill does not have.
        """
        self._actions[:, self._position] = actions
        ended = {name: np.zeros(self.combat.lanes, np.bool_) for name in ("terminated", "truncated", "won", "died")}
        terms = np.zeros((self.combat.lanes, len(self.skill.reward.terms)), np.float32)
        waiting = np.ones(self.combat.lanes, np.bool_)
        while waiting.any():
            self._tick(waiting)
            over = np.flatnonzero(waiting & self.combat.completed[:, self._position])
            if over.size:
                terms[over] = self.skill.reward.evaluate(self.combat.finished(self._position, over))
                for name, flags in ended.items():
                    flags[over] = getattr(self.combat, name)[over]
                waiting[over] = False
        return Outcome(self.observations, terms.sum(axis=1), terms, **ended, seconds=self.combat.seconds)

    def _begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        self.combat.begin(lanes, seeds)
        if self._controller is not None:
            self._controller.begin(lanes, seeds)

    def _tick(self, active: Booleans) -> None:
        if self._controller is not None:
            self._controller.act(self.combat, self._actions)
        self.combat.step(self._actions, None if active.all() else active)
        if self.after_tick is not None:
            self.after_tick()
