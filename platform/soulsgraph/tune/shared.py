"""Stages that several trials of a sweep have in common: one trains each, the others take what it led to.

Two stages are the same if their keys are (`lineage.stage_key`): the fight, all that is learned by, budget, seed and the
versions upstream. A trial whose options concern later skills alone thus begins where the first such one got to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from soulsgraph.results.tables import GrowingTable, read_rows, write_rows
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph_envs.core.files import FileLock, make_folder, whole_folder

_CURVE = "curve"
#: A run's tables of which the stage's rows are kept.
_TABLES = ("training", "curves")


class SharedStages:
    """A folder of finished stages by their keys, filled and read by the trials of a sweep.

    Layout: `<stage>/`: `v<N>/` (as in a library), `curve/`, `training.parquet` and `curves.parquet`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def train(self, workplace: Workplace, stage: Stage) -> None:
        """Train a stage of a run, or take it where another run has; whoever asks meanwhile waits.

        The run has to be locked. What a killed trial began of a stage is trained anew by the next one.

        Raises:
            SoulsGraphError: as `train_stages`.
            WriteError: if a folder cannot be written.
        """
        run = workplace.run
        if lineage.finished_versions(run, stage):
            return
        kept = self._folder / lineage.stage_key(run, stage)
        make_folder(self._folder)
        with FileLock(kept.with_suffix(".lock"), wait=True):
            if (kept / _next_version(run, stage).name).is_dir():
                _take(kept, run, stage)
                return
            train_stages(workplace, (stage,), Console(quiet=True))
            if not kept.exists():
                _keep(kept, run, stage)


def _keep(kept: Path, run: RunFolder, stage: Stage) -> None:
    (card,) = lineage.finished_versions(run, stage)
    curve = run.curve(kept.name)
    with whole_folder(kept) as temporary:
        version = _version_folder(run, stage, card.version)
        shutil.copytree(version, temporary / version.name)
        if curve.is_dir():
            shutil.copytree(curve, temporary / _CURVE)
        for name in _TABLES:
            if (file := run.results(name)).exists():
                rows = [row for row in read_rows(file) if row["stage"] == kept.name]
                write_rows(temporary / file.name, rows)


def _take(kept: Path, run: RunFolder, stage: Stage) -> None:
    """Copy a stage into a run, the version last: where that is, the stage is finished."""
    for name in _TABLES:
        if (file := kept / run.results(name).name).exists():
            table = GrowingTable(run.results(name))
            table.forget(kept.name, 0)
            for row in read_rows(file):
                table.add(row)
            table.flush()
    if (kept / _CURVE).is_dir():
        _copy(kept / _CURVE, run.curve(kept.name))
    version = _next_version(run, stage)
    _copy(kept / version.name, version)


def _next_version(run: RunFolder, stage: Stage) -> Path:
    return _version_folder(run, stage, max(run.library.versions(stage.skill), default=0) + 1)


def _version_folder(run: RunFolder, stage: Stage, version: int) -> Path:
    return run.library.folder / stage.skill / f"v{version}"


def _copy(folder: Path, target: Path) -> None:
    with whole_folder(target, replace=True) as temporary:
        shutil.copytree(folder, temporary, dirs_exist_ok=True)
