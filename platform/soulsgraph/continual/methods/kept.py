"""Selective adaptation with kept versions: adapt the selected skills, and play every task by its own versions."""

from __future__ import annotations

from soulsgraph.continual.methods.learning import TaskWorld, Versions
from soulsgraph.continual.methods.method import Scratch


class KeptVersions(Scratch):
    """Keep what a task's skills were when it ended; a skill that was not adapted is shared by tasks."""

    name = "kept"
    source = "the paper's selective adaptation, with every version of a skill kept in its library"
    selects = True

    def before_task(self, world: TaskWorld) -> None:
        """Go on from the newest versions."""
        self.position = world.position

    def beginning(self) -> Versions:
        """Return the newest versions."""
        return self.newest
