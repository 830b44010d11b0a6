"""A stage's checkpoints: one folder each, written whole, the latest kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.atomic import whole_folder

#: Decisions between two checkpoints to resume from.
SAVE_INTERVAL = 10_000

_PREFIX = "step-"


class StageCheckpoints:
    """Save and find the checkpoints of one stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> Path | None:
        """Give the newest checkpoint, or None."""
        found = sorted(self._folder.glob(f"{_PREFIX}*"))
        return found[-1] if found else None

    def save(self, algorithm: SkillDQN) -> None:
        """Write a checkpoint at the algorithm's count of decisions, then remove the older ones.

        Raises:
            WriteError: if the folder cannot be written; the older checkpoint stays.
        """
        target = self._folder / f"{_PREFIX}{algorithm.decisions:09d}"
        if target.exists():
            return
        with whole_folder(target) as temporary:
            # RLlib takes a relative path for the address of a remote store.
            algorithm.save_checkpoint(str(temporary.absolute()))
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path != target:
                shutil.rmtree(path)
