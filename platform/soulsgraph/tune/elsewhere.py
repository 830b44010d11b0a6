"""Trials on nodes that do not see the sweep's folder: each trains in a temporary one, and what it leaves comes back.

An actor on the driver's node reads and writes the sweep's folder for one trial. It also holds the locks of stages that
trials have in common, so that these are trained once, whichever nodes need them; they are free once it has ended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from soulsgraph.runs.ray_runner import contents, named_here, replace_contents, write_contents
from soulsgraph.tune.folder import SweepFolder
from soulsgraph.tune.shared import SharedStages
from soulsgraph_clusters.sessions.nodes import Mark, answer_of, other_folder, this_node
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import FileLock, make_folder, temporary_folder, whole_folder, writing

#: How the temporary folder of a trial begins.
APART = "soulsgraph-trial-"
Files = Mapping[str, bytes]


@contextmanager
def seen_folder(folder: SweepFolder, run: str) -> Iterator[tuple[SweepFolder, SharedStages]]:
    """Yield the sweep's folder, on a node that sees it, to one trial of a run at a time."""
    with _turn(folder, run):
        yield folder, SharedStages(folder.shared)


def _turn(folder: SweepFolder, run: str) -> FileLock:
    """Wait for another trial of the same run, as of a setting that was drawn twice, and keep others from it."""
    make_folder(folder.shared)
    return FileLock(folder.shared / f"{Path(run).name}.lock", wait=True)


@dataclass(frozen=True)
class SweepPlace:
    """Where the folder of a sweep is: the mark in it, and the node of the driver, which sees it."""

    mark: Mark
    driver: str

    @contextmanager
    def folder(self, folder: SweepFolder, run: str) -> Iterator[tuple[SweepFolder, SharedStages]]:
        """Yield the folder in which a trial trains the run of a name, and the stages that trials have in common.

        Raises:
            SoulsGraphError: naming the node, for what comes from a temporary folder.
        """
        # Nobody is waited for: all nodes were asked before.
        if not self.mark.problem(0.0):
            with seen_folder(folder, run) as seen:
                yield seen
            return
        there = NodeAffinitySchedulingStrategy(self.driver, soft=False)
        drivers = ray.remote(num_cpus=0, scheduling_strategy=there)(DriversFolder).remote(self.mark, folder)
        with temporary_folder(APART) as path:
            try:
                with writing(tempfile.gettempdir()):
                    write_contents(path, answer_of(drivers.read.remote(run)))
                here = SweepFolder(path, folder.plan)
                yield here, StagesElsewhere(here.shared, drivers)
                answer_of(drivers.write.remote(run, contents(path / run)))
            except SoulsGraphError as error:
                raise named_here(error, path, self.mark.folder) from error


class DriversFolder:
    """The folder of a sweep, read and written for one trial on another node; a Ray actor on the driver's."""

    def __init__(self, mark: Mark, folder: SweepFolder) -> None:
        self._mark, self._folder, self._held = mark, folder, dict[str, FileLock]()

    def read(self, run: str) -> Files:
        """Return what a trial begins with: what was trained of its run, and the run that it adapts.

        Raises:
            ClusterError: if it is not the driver's folder.
        """
        if problem := self._mark.problem(0.0):
            raise other_folder(self._mark.folder, f"{problem} on {this_node()}")
        self._held[run] = _turn(self._folder, run)
        parts = {name: self._folder.path / name for name in (run, self._folder.source.name)}
        found = {name: contents(path) for name, path in parts.items() if path.is_dir()}
        return {f"{name}/{file}": content for name, files in found.items() for file, content in files.items()}

    def write(self, run: str, files: Files) -> None:
        """Write what a trial left of its run; raises RunFolderError if another process writes there."""
        make_folder((path := self._folder.path / run).parent)
        replace_contents(path, files)

    def claim(self, stage: str) -> Files:
        """Return a stage that trials have in common, empty if nobody trained it: the caller does, others wait."""
        make_folder(self._folder.shared)
        self._held[stage] = FileLock(self._folder.shared / f"{stage}.lock", wait=True)
        kept = self._folder.shared / stage
        return contents(kept) if kept.is_dir() else {}

    def release(self, stage: str, files: Files) -> None:
        """Keep the stage if it is new, and let others have it."""
        kept = self._folder.shared / stage
        try:
            if files and not kept.exists():
                with whole_folder(kept) as temporary:
                    write_contents(temporary, files)
        finally:
            self._held.pop(stage).close()


class StagesElsewhere(SharedStages):
    """Stages that trials have in common, in the driver's folder; here those that this trial asked for."""

    def __init__(self, folder: Path, drivers: Any) -> None:
        super().__init__(folder)
        self._drivers = drivers

    @contextmanager
    def claimed(self, kept: Path) -> Iterator[None]:
        """Hold a stage for this trial: it is there if anybody trained it, and others get it if this one does."""
        if files := answer_of(self._drivers.claim.remote(kept.name)):
            with whole_folder(kept, replace=True) as temporary:
                write_contents(temporary, files)
        try:
            yield
        finally:
            new = contents(kept) if kept.is_dir() and not files else {}
            answer_of(self._drivers.release.remote(kept.name, new))
