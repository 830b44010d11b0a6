"""Joint training: every task is learned beside what the replays of all earlier tasks held."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from soulsgraph.continual.methods.learning import EndedStage
from soulsgraph.continual.methods.replay import Replay
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


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

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep all decisions that the replay holds."""
        self.reserve.setdefault(skill, []).append(self.drawn(ended, ended.hyperparameters.capacity))
