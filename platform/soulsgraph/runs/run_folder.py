"""The folder of one run: its plan, its skill library, checkpoints, TensorBoard events and results."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from soulsgraph.runs.plan import Plan, scenario_digest
from soulsgraph.runs.supervision import end_orphan, lock_owner, owner_file
from soulsgraph_envs.core import files
from soulsgraph_envs.core.config import Where, read_file, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import FileLock, HeldError
from soulsgraph_policies.agents.library import SkillLibrary
from soulsgraph_policies.agents.projects import ProjectDigest

_VERSION = 1
#: The file that whoever writes a folder locks.
LOCK = ".lock"
_ANOTHER = "name another folder with `run`"
#: For how long whoever meets a held lock looks again: a look at a folder holds its lock for a moment as well.
_HELD_FOR_S, _LOOK_EVERY_S = 1.0, 0.05


class RunFolderError(SoulsGraphError):
    """A folder is not the expected run, or another process writes it."""

    def __init__(self, folder: Path, expected: str, found: str, remedy: str) -> None:
        super().__init__(f"{folder}: expected {expected}, found {found}", remedy)


@dataclass(frozen=True)
class _Graph:
    name: str
    digest: str


@dataclass(frozen=True)
class _PlanFile:
    """What `plan.json` holds."""

    created: str
    graph: _Graph
    #: Where the graph is a project's.
    project: ProjectDigest | None
    scenario_digest: str
    plan: Plan


P = TypeVar("P")


class PlannedFolder(ABC, Generic[P]):
    """A folder that is begun with a plan: make one with `create`, `open`, or `planned` and later `locked`.

    A subclass names its `kind`, the file that holds the plan, and the dataclass of what else the file `holds`.
    """

    kind: ClassVar[str]
    plan_file: ClassVar[str]
    holds: ClassVar[type[Any]]

    def __init__(self, path: Path, plan: P) -> None:
        self.path, self.plan = path, plan
        #: Whether its plan is written, by this process or before.
        self.begun = True

    @classmethod
    def create(cls, path: Path, plan: P) -> Self:
        """Begin a folder; raises as `planned` and `locked` do."""
        folder = cls.planned(path, plan)
        folder.begin()
        return folder

    @classmethod
    def planned(cls, path: Path, plan: P) -> Self:
        """Return a folder that `locked` begins, which is empty or does not exist yet; nothing is written before.

        Raises:
            RunFolderError: if something is in the folder already.
            ReadError: if it cannot be read.
            WriteError: if it cannot be written.
            DataError: if the plan needs more memory than this machine may spare.
        """
        folder = cls(path, plan)
        folder.begun = False
        folder.require_empty()
        files.check_writable(path)
        folder.check_memory()
        return folder

    def begin(self) -> None:
        """Write the plan; raises as `locked`."""
        with self.locked():
            pass

    @abstractmethod
    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""

    @abstractmethod
    def description(self) -> object:
        """Return what the plan's file holds when the folder is begun."""

    def write(self, description: object) -> None:
        """Write the plan's file; raises WriteError."""
        form = {"format": f"soulsgraph {self.kind}", "format_version": _VERSION}
        files.write_json(self.path / self.plan_file, {**form, **to_table(description)})

    @classmethod
    def read(cls, path: Path) -> Any:
        """Return what the plan's file of a folder holds.

        Raises:
            RunFolderError: if there is no such file, or it has another format.
            ProjectError: if it is of a project that is not loaded or has changed; nothing is imported.
            ReadError: if it cannot be read.
            SoulsGraphError: if its plan does not hold.
        """
        file, expected = path / cls.plan_file, {"format": f"soulsgraph {cls.kind}", "format_version": _VERSION}
        with reading(path):
            if not path.exists():
                files.settle(path.parent)
            begun, there = file.is_file(), path.exists()
        if not begun:
            found = f"no {cls.plan_file} in it" if there else "no such folder"
            raise RunFolderError(path, f"the folder of a {cls.kind}", found, f"name the folder of a {cls.kind}")
        where = Where(file, remedy=f"restore the file from a copy or begin a new {cls.kind}")
        values = validate(dict[str, Any], read_file(where), where)
        for name, value in expected.items():
            # True is 1 for Python.
            if repr(found := values.pop(name, None)) != repr(value):
                remedy = "name another folder, or use the version of soulsgraph that wrote it"
                raise RunFolderError(file, f"{name.replace('_', ' ')} {value!r}", shown(found), remedy)
        if (project := values.get("project")) is not None:
            validate(ProjectDigest, project, where.at("project")).check(path)
        return validate(cls.holds, values, where)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from writing this folder; the lock dies with its process. A planned one is begun.

        What killed writers left there is removed. A training that outlived its supervisor is ended first.

        Raises:
            RunFolderError: if another process holds it, or something came into a planned one since then.
            LockError: if its file system has no locks.
            WriteError: if the folder cannot be written.
        """
        with files.writing(self.path):
            if not self.begun:
                files.make_folder(self.path)
            lock = take_lock(self.path)
        with lock:
            files.settle_all(self.path)
            if not self.begun:
                self.require_empty()
                self.write(self.description())
                self.begun = True
            yield

    def require_empty(self) -> None:
        """Refuse a folder in which something is, but for a lock and what killed writers left; raises RunFolderError."""
        path = self.path
        with reading(path):
            ours = (LOCK, owner_file(path / LOCK).name)
            if path.exists() and any(f.name not in ours and not files.is_unfinished(f) for f in path.iterdir()):
                found = f"a {self.kind}" if (path / self.plan_file).is_file() else "other files"
                raise RunFolderError(path, f"an empty folder for a new {self.kind}", found, _ANOTHER)


class RunFolder(PlannedFolder[Plan]):
    """Paths of a run and its plan.

    Layout: `plan.json`, `library/<skill>/v<N>/`, `checkpoints/<stage>/`, `curves/<stage>/`, `tensorboard/`,
    `results/<name>.parquet`. A stage is named by its key, which has a digest of all that determines it.
    """

    kind, plan_file, holds = "run", "plan.json", _PlanFile

    def __init__(self, path: Path, plan: Plan, fight: str = "") -> None:
        super().__init__(path, plan)
        self._fight = fight
        self.library = SkillLibrary(path / "library", plan.skill_graph)
        self.tensorboard = path / "tensorboard"

    @property
    def fight(self) -> str:
        """A digest of the fight that it was begun in; of the present one before it is begun."""
        self._fight = self._fight or scenario_digest(self.plan.scenario)
        return self._fight

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        self.plan.check_memory()

    def description(self) -> _PlanFile:
        """Return what `plan.json` holds."""
        plan, now = self.plan, datetime.now(UTC).isoformat()
        graph = _Graph(plan.graph, plan.skill_graph.digest)
        self._fight = scenario_digest(plan.scenario)
        return _PlanFile(now, graph, ProjectDigest.of(plan.graph), self._fight, plan)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run that `create` began.

        Raises:
            RunFolderError: as `read`, and if it has another graph, or its own scenario's file changed.
            SoulsGraphError: as `read`.
        """
        file, read = path / cls.plan_file, cls.read(path)
        plan, graph = read.plan, read.graph
        if graph.digest != plan.skill_graph.digest:
            expected = f"the graph {plan.graph!r} of this version ({plan.skill_graph.digest[:16]})"
            raise RunFolderError(file, expected, f"{shown(graph.name)} ({graph.digest[:16]})", "begin a new run")
        # A shipped scenario goes with the version of the package; a file of your own may be edited.
        if plan.scenario.endswith(".toml") and read.scenario_digest != scenario_digest(plan.scenario):
            remedy = "restore it, or give the changed one another name and begin a new run"
            raise RunFolderError(Path(plan.scenario), f"the scenario that {path} began with", "it changed", remedy)
        return cls(path, plan, read.scenario_digest)

    def checkpoints(self, stage: str) -> Path:
        """Return the folder of a stage's checkpoints, and of all that determines it."""
        return self.path / "checkpoints" / stage

    def curve(self, stage: str) -> Path:
        """Return the folder of the weights of a stage's learning curve."""
        return self.path / "curves" / stage

    @classmethod
    def of_plan(cls, path: Path, plan: Plan) -> RunFolder:
        """Open a run, begun if it is not there; raises SoulsGraphError if that of another plan is."""
        if not (path / cls.plan_file).exists():
            return cls.create(path, plan)
        run = cls.open(path)
        check_given(path, run.plan, {field.name: getattr(plan, field.name) for field in fields(plan)})
        return run

    def journal(self, stage: str) -> Path:
        """Return the folder of what a fleet played in a stage."""
        return self.path / "journal" / stage

    def demonstrations(self, skill: str, version: int) -> Path:
        """Return the folder of the decisions that a version was cloned from."""
        return self.path / "demonstrations" / f"{skill}-v{version}"

    def results(self, name: str) -> Path:
        """Return the Parquet file of results of that name."""
        return self.path / "results" / f"{name}.parquet"


def check_given(folder: Path, plan: object, given: Mapping[str, Any]) -> None:
    """Refuse a value that contradicts the plan in a folder.

    Raises:
        SoulsGraphError: naming the field, the folder's value and the value given.
    """
    for name, value in given.items():
        kept = getattr(plan, name, None)
        if kept is None and value is not None:
            # What the plan's preset has in its place.
            kept = getattr(getattr(plan, "method", None), name, None)
        if value != kept:
            kept, value = (item if isinstance(item, str) else shown(item) for item in (kept, value))
            raise SoulsGraphError(f"{folder}: its plan has {name} = {kept}, found {value}; leave it out or {_ANOTHER}.")


def take_lock(folder: Path) -> FileLock:
    """Keep other processes from writing a run folder, which exists, until the lock is closed.

    Raises:
        RunFolderError: if another process holds it for longer than a moment.
        LockError: if its file system has no locks.
    """
    path, owners = folder / LOCK, owner_file(folder / LOCK)
    until_s, late = time.monotonic() + _HELD_FOR_S, False
    while True:
        with suppress(HeldError):
            lock = FileLock(path)
            owners.write_text(lock_owner(), encoding="ascii")
            return lock
        owner = owners.read_text(encoding="ascii", errors="replace")[:40] if owners.exists() else ""
        if not end_orphan(path, owner) and late:
            found, remedy = f"process {owner.partition(' ')[0] or 'another'}", "wait for it or name another folder"
            raise RunFolderError(folder, "no other process writing here", found, remedy)
        # Late or not there is another look: whoever held it may have ended by itself meanwhile.
        late = time.monotonic() > until_s
        time.sleep(_LOOK_EVERY_S)
