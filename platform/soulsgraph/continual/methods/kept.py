"""Versions that are kept for each task: selective adaptation, training every task from nothing, and specialists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from soulsgraph.continual.methods.learning import EndedStage, SkillVersion, TaskWorld, Versions
from soulsgraph.continual.methods.method import Method
from soulsgraph.continual.methods.replay import Replay

if TYPE_CHECKING:
    from soulsgraph_policies.learning.algorithm import SkillDQN


@dataclass
class KeptVersions(Method):
    """Adapt the selected skills from the newest versions, and play every task by what they were when it ended.

    A skill that was not adapted is shared by tasks.
    """

    name = "kept"
    source = "the paper's selective adaptation, with every version of a skill kept in its library"
    has_versions = keeps_versions = True

    kept: list[dict[str, SkillVersion]] = field(default_factory=list)

    def after_task(self, world: TaskWorld) -> None:
        """Keep the task's versions."""
        self.kept.append(dict(self.newest))

    def playing(self, position: int) -> Versions:
        """Return the task's own versions."""
        return self.kept[position] if position < len(self.kept) else self.newest


class Scratch(KeptVersions):
    """Train every task from nothing: what forward transfer is measured against."""

    name, source, selects, isolated = "scratch", "the reference of forward transfer", False, True

    def before_task(self, world: TaskWorld) -> None:
        """Forget everything."""
        super().before_task(world)
        self.newest = {}

    def beginning(self) -> Versions:
        """Return nothing."""
        return {}


@dataclass
class BaseAndSpecialists(KeptVersions, Replay):
    """Learn a base on the first tasks by replay, then adapt it to each task, keeping what each task ended with."""

    name = "base"
    source = "ours: a base that knows several bosses, from which kept specialists are adapted"
    coefficients: ClassVar[tuple[str, ...]] = ("reserve", "reserve_share", "base_tasks")

    base: dict[str, SkillVersion] = field(default_factory=dict)

    @property
    def _basing(self) -> bool:
        return self.world.position < min(self.options.base_tasks, self.tasks)

    def before_task(self, world: TaskWorld) -> None:
        """Begin at the base once it is whole."""
        super().before_task(world)
        if not self._basing:
            self.newest = dict(self.base)

    def beginning(self) -> Versions:
        """Return the base, or what there is of it."""
        return self.base or self.newest

    def home(self, skill: str, learned_at: int) -> int:
        """Return the last of the base's tasks in which the skill can have learned."""
        return min(learned_at, self.options.base_tasks - 1)

    def keep(self, algorithm: SkillDQN, skill: str, parts: Any) -> None:
        """Draw from the reserve while the base is trained."""
        if self._basing:
            super().keep(algorithm, skill, parts)

    def end_stage(self, skill: str, ended: EndedStage) -> None:
        """Keep decisions while the base is trained."""
        if self._basing:
            super().end_stage(skill, ended)

    def after_task(self, world: TaskWorld) -> None:
        """Keep the task's versions; while the base is trained it is what was learned last."""
        super().after_task(world)
        if self._basing:
            self.base = dict(self.newest)
        if world.position + 1 >= self.options.base_tasks:
            self.reserve = {}

    def playing(self, position: int) -> Versions:
        """Return the task's own versions; those of the base's tasks are the base itself."""
        if position < min(self.options.base_tasks, len(self.kept)):
            return self.base
        return super().playing(position)
