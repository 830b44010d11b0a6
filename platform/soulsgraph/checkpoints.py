"""A stage's checkpoints: one folder each, written whole, the latest two kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.atomic import whole_folder

#: Decisions between two checkpoints to resume from.
SAVE_INTERVAL = 10_000

#: Checkpoints kept: where the latest is damaged, the stage goes on from the one before.
_KEPT = 2
_PREFIX = "step-"


class StageCheckpoints:
    """Save and find the checkpoints of one stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        return next(reversed(self._all()), None)

    def save(self, algorithm: SkillDQN) -> None:
        """Write a checkpoint at the algorithm's count of decisions, then remove all but the latest two.

        Raises:
            WriteError: if the folder cannot be written; the older checkpoints stay.
        """
        target = self._folder / f"{_PREFIX}{algorithm.decisions:09d}"
        if target.exists():
            return
        with whole_folder(target) as temporary:
            # RLlib takes a relative path for the address of a remote store.
            algorithm.save_checkpoint(str(temporary.absolute()))
        for path in self._all()[:-_KEPT]:
            shutil.rmtree(path)

    def _all(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}*"))
