"""Reset and distil: every task is learned from nothing and distilled, with the tasks before, into one network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

from soulsgraph.continual.methods.learning import EndedStage, SkillVersion, Versions
from soulsgraph.continual.methods.replay import Replay
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN

_STREAM = 61


@dataclass
class ResetAndDistil(Replay):
    """Learn a task by a network that is reset, then fit one network to it and to what played the tasks before.

    Nothing of old weights hinders a new task; the network that plays has the size of one.
    """

    name = "distil"
    source = "Ahn et al. (2025), Prevalence of negative transfer in continual reinforcement learning (reset & distil)"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "distilled_updates")
    fixes_statistics = False

    _numbers: dict[str, DQNHyperparameters] = field(default_factory=dict)

    def start(self, skill: str) -> SkillVersion | None:
        """Begin at nothing."""
        return None

    def beginning(self) -> Versions:
        """Return nothing: it begins every task so."""
        return {}

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Learn the task from its own decisions alone."""

    def kept_of(self, ended: EndedStage) -> Transitions:
        """Return decisions of which the observations are distilled, and keep how the skill learns."""
        self._numbers[ended.skill] = ended.hyperparameters
        rows = super().kept_of(ended)
        return replace(rows, next_observations=rows.observations)

    def take(self, skill: str, version: SkillVersion) -> None:
        """Distil what was learned, and what played before, into one network."""
        # Imported here: it loads torch.
        from soulsgraph.continual.methods.distillation import distil

        *old, new = self.reserve[skill]
        if skill in self.newest and old:
            teachers = [(version.weights, new.observations)]
            teachers += [(self.newest[skill].weights, part.observations) for part in old]
            seed = int(derive_seeds(self.seed, _STREAM, self.world.position, crc32(skill.encode()))[0] >> 33)
            updates = self.options.distilled_updates
            version = distil(self.world.skill(skill), teachers, self._numbers[skill], seed, updates)
        super().take(skill, version)
