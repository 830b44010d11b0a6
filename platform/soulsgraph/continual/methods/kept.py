"""Versions that are kept for each task: selective adaptation, and training every task from nothing."""

from __future__ import annotations

from soulsgraph.continual.methods.learning import SkillVersion, TaskWorld, Versions
from soulsgraph.continual.methods.method import Method, MethodOptions


class KeptVersions(Method):
    """Adapt the selected skills from the newest versions, and play every task by what they were when it ended.

    A skill that was not adapted is shared by tasks.
    """

    name = "kept"
    source = "the paper's selective adaptation, with every version of a skill kept in its library"
    has_versions = keeps_versions = True

    def __init__(self, options: MethodOptions, tasks: int, seed: int) -> None:
        super().__init__(options, tasks, seed)
        self.kept: list[dict[str, SkillVersion]] = []

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
