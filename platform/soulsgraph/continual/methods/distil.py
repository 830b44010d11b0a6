"""Reset and distil: every task is learned from nothing and distilled, with the tasks before, into one network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from soulsgraph.continual.methods.learning import EndedStage, SkillVersion, TaskWorld, Versions
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.methods.replay import Replay
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_policies.learning.sampler import Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN

_STREAM = 61


class ResetAndDistil(Replay):
    """Learn a task by a network that is reset, then fit one network to it and to what played the tasks before.

    Nothing of old weights hinders a new task; the network that plays has the size of one.
    """

    name = "distil"
    source = "Ahn et al. (2025), Prevalence of negative transfer in continual reinforcement learning (reset & distil)"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "distilled_updates")
    fixes_statistics = False

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        self._numbers: dict[str, Any] = {}
        self._world: TaskWorld | None = None

    def before_task(self, world: TaskWorld) -> None:
        """Begin a task."""
        super().before_task(world)
        self._world = world

    def start(self, skill: str) -> SkillVersion | None:
        """Begin at nothing."""
        return None

    def beginning(self) -> Versions:
        """Return nothing: it begins every task so."""
        return {}

    def keep(self, algorithm: SkillDQN, skill: str, parts: list[Transitions]) -> None:
        """Learn the task from its own decisions alone."""

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep observations, and how the skill learns."""
        super().end_stage(skill, ended)
        # Of a decision its observation is what is distilled.
        new = self.reserve[skill][-1]
        self.reserve[skill][-1] = replace(new, next_observations=new.observations)
        self._numbers[skill] = ended.hyperparameters

    def take(self, skill: str, version: SkillVersion) -> None:
        """Distil what was learned, and what played before, into one network."""
        # Imported here: it loads torch.
        from soulsgraph.continual.methods.distillation import distil

        *old, new = self.reserve[skill]
        if skill in self.newest and old:
            assert self._world is not None
            teachers = [(version.weights, new.observations)]
            teachers += [(self.newest[skill].weights, part.observations) for part in old]
            version = distil(
                self._world.skill(skill),
                teachers,
                self._numbers[skill],
                int(derive_seeds(self.seed, _STREAM, self.position, crc32(skill.encode()))[0] >> 33),
                self.options.distilled_updates,
            )
        super().take(skill, version)
