"""Studies of many runs: a plan in a folder, units of which each returns rows, and the tables of all rows.

A unit is one method, part or graph with one seed: it trains and evaluates in run folders of its own below the study's,
and goes on with what is there.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.run_folder import PlannedFolder, RunFolderError
from soulsgraph_envs.core.config import Where, digest_of, read_file, to_table, validate
from soulsgraph_envs.core.files import slug, whole_folder, write_json
from soulsgraph_policies.agents.projects import ProjectDigest

_SESSIONS = "sessions.json"
#: Of the folder of a unit's rows, how much of its name and how many digits of the digest are in its own name.
_CHARACTERS, _DIGITS = 80, 8

P = TypeVar("P")
#: Rows by the name of their table.
Tables = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Unit:
    """A part of a study that is done by itself: `work(folder, *arguments, supervisor)`, on any node, returns its rows.

    It goes on with what an earlier call left, and raises `Interruption` once the supervisor asks for a stop.
    """

    name: str
    work: str | Callable[..., Tables]
    """A function, or where it is, as module:function: what trains takes seconds to import."""
    arguments: tuple[Any, ...] = field(hash=False)
    inputs: str = ""
    """A digest of what determines its rows beside the plan: those of other inputs are not found again."""
    first: bool = False
    """Whether others go on with what it leaves."""

    @property
    def folder(self) -> str:
        """The folder of its rows, below that of all rows."""
        return f"{slug(self.name)[:_CHARACTERS]}-{digest_of([self.name, self.inputs])[:_DIGITS]}"


@dataclass(frozen=True)
class StudySession:
    """When units of a study were done, from which commit, on what machine, and for how long."""

    started: str = ""
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    wall_time_s: float = 0.0
    """0 where it was killed."""


@dataclass(frozen=True)
class StudyFile(Generic[P]):
    """What a study's file holds."""

    fights: Mapping[str, str]
    """Digests of the fights that it is about: results of others cannot be compared."""
    project: ProjectDigest | None
    """Where its graph is a project's."""
    plan: P


class StudyFolder(PlannedFolder[P]):
    """Paths of a study: its plan, `sessions.json`, runs as its units name them, `rows/<unit>/`, and tables of all rows.

    A subclass names the folder of its `tables`.
    """

    tables: ClassVar[str] = "results"

    @staticmethod
    @abstractmethod
    def fights(plan: Any) -> dict[str, str]:
        """Return the digests of the fights that a plan is about."""

    @property
    def graph(self) -> str:
        """The skill graph, which may be a project's."""
        return "paper"

    @property
    def units(self) -> Sequence[Unit]:
        """The units, in the order of their rows; what Ray Tune searches has none."""
        return ()

    def prepare(self) -> None:
        """Write what all units go on with; raises WriteError."""

    def description(self) -> StudyFile[P]:
        """Return what the study's file holds when it is begun."""
        return StudyFile(self.fights(self.plan), ProjectDigest.of(self.graph), self.plan)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a study that `create` began.

        Raises:
            SoulsGraphError: if it is none, its plan does not hold, or a fight changed since it was begun.
        """
        begun = cls.read(path)
        if begun.fights != (now := cls.fights(begun.plan)):
            expected = f"the data of {', '.join(now)} that it was created with"
            raise RunFolderError(path / cls.plan_file, expected, "that they changed", "restore them or begin anew")
        return cls(path, begun.plan)

    def rows_of(self, unit: Unit) -> Path:
        """Return the folder of a unit's rows, which is there when it is done."""
        return self.path / "rows" / unit.folder

    @property
    def left(self) -> list[Unit]:
        """The units that are not done."""
        return [unit for unit in self.units if not self.rows_of(unit).is_dir()]

    def keep(self, unit: Unit, tables: Tables) -> None:
        """Write the rows of a unit: it is done; raises WriteError."""
        with whole_folder(self.rows_of(unit), replace=True) as temporary:
            for name, rows in tables.items():
                write_rows(temporary / f"{name}.parquet", rows)

    def assemble(self) -> None:
        """Write the tables of all rows so far.

        Raises:
            SoulsGraphError: if rows are damaged.
            WriteError: if the folder cannot be written.
        """
        tables: dict[str, list[Mapping[str, Any]]] = {}
        for unit in self.units:
            for file in sorted(self.rows_of(unit).glob("*.parquet")):
                tables.setdefault(file.stem, []).extend(read_rows(file, "remove its folder and run the study again"))
        for name, rows in tables.items():
            if rows:
                write_rows(self.path / self.tables / f"{name}.parquet", rows)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Record a session: when it began, from which commit and on what machine, and how long it took."""
        began_s, before = time.monotonic(), [*sessions_of(self.path)]
        session = StudySession(datetime.now(UTC).isoformat(timespec="seconds"), **describe_origin())

        def write(took_s: float) -> None:
            sessions = [*before, replace(session, wall_time_s=round(took_s, 1))]
            write_json(self.path / _SESSIONS, [to_table(one) for one in sessions])

        # At once: a session that is killed has trained, too.
        write(0.0)
        try:
            yield
        finally:
            write(time.monotonic() - began_s)


def sessions_of(folder: Path) -> Sequence[StudySession]:
    """Return the sessions of a folder, in order; none without a study. Raises DataError."""
    file = folder / _SESSIONS
    if not file.is_file():
        return ()
    where = Where(file, remedy="remove the file: it only says when and where the study was run")
    return validate(list[StudySession], read_file(where), where)
