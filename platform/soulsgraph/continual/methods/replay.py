"""Replay with a reserve: decisions of earlier tasks stay in the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from soulsgraph.continual.methods.learning import EndedStage
from soulsgraph.continual.methods.method import Method, MethodOptions
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class Replay(Method):
    """Keep some decisions of every task, and draw a share of each batch from them."""

    name = "replay"
    source = "Rolnick et al. (2019), Experience replay for continual learning, without its cloning loss"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "reserve_share")
    fixes_statistics = True

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        #: Of each skill, a part for every task that it learned in.
        self.reserve: dict[str, list[Transitions]] = {}

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
        self.reserve.setdefault(skill, []).append(self.drawn(ended, self.options.reserve))
