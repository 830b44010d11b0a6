"""Joint training, the bound: every task is learned beside everything that was ever played."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soulsgraph.continual.learning import EndedStage
from soulsgraph.continual.methods.replay import Replay, replay_of
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


class Joint(Replay):
    """Keep whole replays, and draw every task as often as the others: what no bound on memory would allow.

    It meets the tasks one after another, as the others do, for as many decisions.
    """

    name, source = "joint", "multi-task training, an upper bound (Wolczyk et al. 2021)"

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Learn from all tasks in equal shares."""
        replay_of(algorithm, skill).keep(Transitions.join(parts), len(parts) / (len(parts) + 1.0))

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep all decisions that the replay holds; of a first task that methods share, what is shared of it."""
        self.reserve.setdefault(skill, []).append(self.drawn(ended, ended.hyperparameters.buffer_size))
