"""Replay with a reserve: decisions of earlier tasks stay in the batches, are cloned, or all of them are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soulsgraph.continual.methods.importance import layer_outputs
from soulsgraph.continual.methods.learning import EndedStage
from soulsgraph.continual.methods.method import Method
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


@dataclass
class Replay(Method):
    """Keep some decisions of every task, and draw a share of each batch from them.

    `reserve` has of each skill a part for every task that it learned in.
    """

    name = "replay"
    source = "Rolnick et al. (2019), Experience replay for continual learning, without its cloning loss"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "reserve_share")
    fixes_statistics = True

    reserve: dict[str, list[Transitions]] = field(default_factory=dict)

    def begin_stage(self, algorithm: SkillDQN, skill: str) -> None:
        """Put what is kept of earlier tasks beside what will be played."""
        super().begin_stage(algorithm, skill)
        if parts := self.reserve.get(skill):
            self.keep(algorithm, skill, parts)

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Learn from kept decisions as from one's own."""
        algorithm.training[skill].replay.keep(Transitions.join(parts), self.options.reserve_share)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep some of what was played."""
        self.reserve.setdefault(skill, []).append(self.kept_of(ended))

    def kept_of(self, ended: EndedStage) -> Transitions:
        """Return what is kept of the decisions of a stage."""
        return self.drawn(ended, self.options.reserve)


class ClonEx(Replay):
    """Keep observations of every task with what was chosen there, and raise these actions above the others.

    The paper clones an actor by the divergence from its old distribution; a greedy Q-network is cloned by a large
    margin, as decisions of people are.
    """

    name = "clonex"
    source = "Wolczyk et al. (2022), Disentangling transfer in continual reinforcement learning"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "reserve_share", "cloning_margin")

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Clone what was chosen: kept decisions have no temporal-difference loss."""
        replay, options = algorithm.training[skill].replay, self.options
        replay.keep(Transitions.join(parts), options.reserve_share, td=False, margin=options.cloning_margin)

    def kept_of(self, ended: EndedStage) -> Transitions:
        """Return observations with the actions that are best there now: those that were played include random ones."""
        rows = super().kept_of(ended)
        clip = ended.hyperparameters.observation_clip
        chosen = layer_outputs(ended.version.weights, rows.observations, clip)[-1].argmax(axis=1).astype(np.int64)
        # What followed is not learned from; rewards scale the margin.
        return replace(rows, actions=chosen, next_observations=rows.observations)


class Joint(Replay):
    """Keep whole replays, and draw every task as often as the others: what no bound on memory would allow.

    It meets the tasks one after another, as the others do, for as many decisions, and a replay holds the last third of
    a stage: an estimate of the bound, no bound. Of a first task that methods share it keeps what is shared of it.
    """

    name, source = "joint", "multi-task training (Wolczyk et al. 2021), as far as decisions come in sequence"
    coefficients: ClassVar[tuple[str, ...]] = ()

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Learn from all tasks in equal shares."""
        for part in parts:
            algorithm.training[skill].replay.keep(part, 1.0 / (len(parts) + 1.0))

    def kept_of(self, ended: EndedStage) -> Transitions:
        """Return all decisions that the replay holds."""
        return self.drawn(ended, ended.hyperparameters.capacity)
