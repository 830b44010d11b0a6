"""The folder of a reproduction: its plan, an ordinary run for each unit, and the records of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from soulsgraph.files import api_call, write_json
from soulsgraph.plan import scenario_digest
from soulsgraph.provenance import describe_origin
from soulsgraph.reports.parquet import write_rows
from soulsgraph.reports.reproduction_records import COLUMNS, DESCRIPTION, Records
from soulsgraph.reproduction.protocol import HOME, SHIFTED, Study, Unit
from soulsgraph.run_folder import RunFolder, locked, require_empty
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.schema import Where, read_file, read_table, read_value, to_table
from soulsgraph_policies.atomic import check_writable

_FORMAT, _VERSION = "soulsgraph reproduction", 1
_OPENING = "ReproductionFolder.open"
_REMEDY = "restore the file from a copy or begin a new folder with `path`"
_AGAIN = f"remove it and go on with `{_OPENING}`"


@dataclass(frozen=True)
class _Begun:
    """What `reproduction.json` holds; each session has its `wall_time_s`, and where it ran."""

    format: str
    version: int
    plan: Study
    started: str
    wall_time_s: float
    scenarios: Mapping[str, str]
    sessions: list[Mapping[str, Any]]


#: Rows of each record table by the table's name.
Tables = Mapping[str, Records]


class ReproductionFolder:
    """Paths of a reproduction; make one with `create`, `open`, or `planned` and later `begin`.

    Layout: `reproduction.json`, `seeds/<seed>/<part>/` (a run folder), `seeds/<seed>/pieces/<part>-<piece>.json`,
    `references.json` and `records/<table>.parquet`.
    """

    def __init__(self, path: Path, study: Study) -> None:
        self.path, self.study = path, study

    @classmethod
    def create(cls, path: Path, study: Study) -> ReproductionFolder:
        """Begin a reproduction in a folder; raises as `planned` and `begin` do."""
        folder = cls.planned(path, study)
        folder.begin()
        return folder

    @classmethod
    def planned(cls, path: Path, study: Study) -> ReproductionFolder:
        """Return a reproduction to `begin` in a folder that is empty or does not exist yet; nothing is written before.

        Raises:
            RunFolderError: if something is in the folder already.
            SoulsGraphError: if a replay would fill more than half of this machine's memory.
            WriteError: if it cannot be written.
        """
        for unit in study.units():
            if unit.seed == study.seeds[0]:
                study.plan(unit).check_memory()
        require_empty(path, "reproduction", DESCRIPTION, _OPENING)
        check_writable(path)
        return cls(path, study)

    @property
    def begun(self) -> bool:
        """Whether the plan is in the folder."""
        return (self.path / DESCRIPTION).is_file()

    def begin(self) -> None:
        """Write the plan.

        Raises:
            RunFolderError: if something came into the folder since it was planned.
            WriteError: if it cannot be written.
        """
        require_empty(self.path, "reproduction", DESCRIPTION, _OPENING)
        self._describe(_Begun(_FORMAT, _VERSION, self.study, _now(), 0.0, _fights(), []))

    @classmethod
    def open(cls, path: Path) -> ReproductionFolder:
        """Open a reproduction that `create` began.

        Raises:
            SoulsGraphError: if it is no reproduction, its plan does not hold, or the fights changed since it was begun.
        """
        file = path / DESCRIPTION
        if not file.is_file():
            raise SoulsGraphError(
                f"{path}: expected the folder of a reproduction, found no {DESCRIPTION} in it; "
                f"begin one with: {api_call('ReproductionFolder.create', path=path)}."
            )
        begun = _read_begun(file)
        _require_same_fights(begun.scenarios, file)
        return cls(path, begun.plan)

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other process from working on this reproduction; the lock dies with its process.

        Raises:
            RunFolderError: if another process holds it.
            WriteError: if the folder cannot be written.
        """
        return locked(self.path)

    def run(self, unit: Unit) -> RunFolder:
        """Open the unit's run folder, begun if it is not there."""
        path = self.path / "seeds" / str(unit.seed) / unit.part
        return RunFolder.open(path) if (path / "plan.json").exists() else RunFolder.create(path, self.study.plan(unit))

    def record(self, unit: Unit, piece: str, make: Callable[[], Tables]) -> None:
        """Write what `make` returns as a piece of the unit's records, unless it exists."""
        self._record(self._pieces(unit.seed) / f"{unit.part}-{piece}.json", make)

    def record_references(self, make: Callable[[], Tables]) -> None:
        """Write the rows that need no training, unless they exist."""
        self._record(self.path / "references.json", make)

    def assemble(self) -> None:
        """Write the record tables from every piece there is.

        Raises:
            SoulsGraphError: if a piece is damaged.
            WriteError: if the folder cannot be written.
        """
        files = [self.path / "references.json"]
        files += [file for seed in self.study.seeds for file in sorted(self._pieces(seed).glob("*.json"))]
        pieces = [_read_piece(file) for file in files if file.exists()]
        for table, columns in COLUMNS.items():
            rows = [row for piece in pieces for row in piece.get(table, [])]
            kept = [{"preset": self.study.preset, **row} for row in rows]
            write_rows(
                self.path / "records" / f"{table}.parquet", [{name: row[name] for name in columns} for row in kept]
            )

    def begin_session(self) -> None:
        """Record when, where, and from which commit and packages the work begins or continues."""
        begun = _read_begun(self.path / DESCRIPTION)
        session = {"started": _now(), "wall_time_s": 0.0, **describe_origin()}
        self._describe(replace(begun, sessions=[*begun.sessions, session]))

    def add_wall_time(self, seconds: float) -> None:
        """Add to the time that the last session has taken, and to that of all sessions together."""
        begun = _read_begun(self.path / DESCRIPTION)
        *before, last = begun.sessions
        sessions = [*before, {**last, "wall_time_s": round(last["wall_time_s"] + seconds, 1)}]
        self._describe(replace(begun, wall_time_s=round(begun.wall_time_s + seconds, 1), sessions=sessions))

    def _describe(self, begun: _Begun) -> None:
        write_json(self.path / DESCRIPTION, to_table(begun))

    def _pieces(self, seed: int) -> Path:
        return self.path / "seeds" / str(seed) / "pieces"

    def _record(self, file: Path, make: Callable[[], Tables]) -> None:
        if not file.exists():
            write_json(file, make())


def _read_begun(file: Path) -> _Begun:
    where = Where(file, remedy=_REMEDY, saved=True)
    values = read_file(where)
    if not isinstance(values, dict) or (values.get("format"), values.get("version")) != (_FORMAT, _VERSION):
        raise SoulsGraphError(f"{file}: expected format {_FORMAT!r} {_VERSION}, found another; {_REMEDY}.")
    begun = read_table(_Begun, values, where)
    for index, session in enumerate(begun.sessions):
        read_value(float, session.get("wall_time_s"), where.at("sessions").at(index).at("wall_time_s"))
    return begun


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fights() -> dict[str, str]:
    """Return the digest of everything that each fight's data says."""
    return {name: scenario_digest(name) for name in (HOME, SHIFTED)}


def _require_same_fights(begun: Mapping[str, str], file: Path) -> None:
    """Refuse to continue with fights whose data changed: results of different fights cannot be compared."""
    if begun != (now := _fights()):
        raise SoulsGraphError(
            f"{file}: expected the data of {', '.join(now)} that it was begun with, found that they changed, "
            "or that an earlier version wrote it; restore them or begin a new folder with `path`."
        )


def _read_piece(file: Path) -> dict[str, Any]:
    piece = read_file(Where(file, remedy=_AGAIN))
    if not isinstance(piece, dict) or not all(
        _is_table(piece.get(name, []), columns) for name, columns in COLUMNS.items()
    ):
        raise SoulsGraphError(f"{file}: expected an object of record tables, found {piece!r:.40}; {_AGAIN}.")
    return piece


def _is_table(rows: object, columns: Sequence[str]) -> bool:
    wanted = {*columns} - {"preset"}
    return isinstance(rows, list) and all(isinstance(row, dict) and wanted <= row.keys() for row in rows)
