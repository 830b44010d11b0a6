"""The folder of a reproduction: its plan, an ordinary run for each unit, and the records of them all."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from soulsgraph.files import read_json, write_json
from soulsgraph.reports.parquet import write_rows
from soulsgraph.reports.reproduction_records import COLUMNS, DESCRIPTION, Records
from soulsgraph.reproduction.protocol import Protocol, Unit
from soulsgraph.run_folder import LOCK, RunFolder, locked
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.artifact import package_versions
from soulsgraph_policies.atomic import writing

_FORMAT, _VERSION = "soulsgraph reproduction", 1
_REMEDY = "restore the file from a copy or begin a new folder with --out"

#: Rows of each record table by the table's name.
Tables = Mapping[str, Records]


class ReproductionFolder:
    """Paths of a reproduction; make one with `create` or `open`.

    Layout: `reproduction.json`, `seeds/<seed>/<part>/` (a run folder), `seeds/<seed>/pieces/<part>-<piece>.json`,
    `references.json` and `records/<table>.parquet`.
    """

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path, self.protocol = path, protocol

    @classmethod
    def create(cls, path: Path, protocol: Protocol) -> ReproductionFolder:
        """Begin a reproduction in a folder that is empty or does not exist yet.

        Raises:
            SoulsGraphError: if something is in the folder already.
            WriteError: if it cannot be written.
        """
        with writing(path):
            if path.exists() and any(file.name != LOCK for file in path.iterdir()):
                remedy = "go on with --resume or name another with --out"
                found = "a reproduction" if (path / DESCRIPTION).exists() else "other files"
                raise SoulsGraphError(f"{path}: expected an empty folder for a reproduction, found {found}; {remedy}.")
        folder = cls(path, protocol)
        folder._describe({"started": datetime.now(UTC).isoformat(timespec="seconds"), "wall_time_s": 0.0})
        return folder

    @classmethod
    def open(cls, path: Path) -> ReproductionFolder:
        """Open a reproduction that `create` began.

        Raises:
            SoulsGraphError: if it is none, or its plan does not hold.
        """
        file = path / DESCRIPTION
        if not file.is_file():
            raise SoulsGraphError(
                f"{path}: expected the folder of a reproduction, found no {DESCRIPTION} in it; "
                "begin one without --resume."
            )
        values = read_json(file, _REMEDY)
        if not isinstance(values, dict) or (values.get("format"), values.get("version")) != (_FORMAT, _VERSION):
            raise SoulsGraphError(f"{file}: expected format {_FORMAT!r} {_VERSION}, found another; {_REMEDY}.")
        plan = values.get("plan")
        if not isinstance(plan, dict):
            raise SoulsGraphError(f"{file}: expected an object named 'plan', found {plan!r:.40}; {_REMEDY}.")
        return cls(path, Protocol.from_dict(plan, file))

    def check_against(self, wanted: Protocol, default: Protocol) -> None:
        """Refuse an option, one that is not the default, that contradicts the plan.

        Raises:
            SoulsGraphError: naming the option, the folder's value and the value given.
        """
        for name in (field.name for field in fields(Protocol)):
            kept, given = getattr(self.protocol, name), getattr(wanted, name)
            if given not in (kept, getattr(default, name)):
                raise SoulsGraphError(
                    f"{self.path}: its plan has {name} = {kept}, found {given}; leave the option out "
                    "or begin another folder with --out."
                )

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
        return (
            RunFolder.open(path) if (path / "plan.json").exists() else RunFolder.create(path, self.protocol.plan(unit))
        )

    def record(self, unit: Unit, piece: str, make: Callable[[], Tables]) -> None:
        """Write what `make` gives as a piece of the unit's records, unless it is there already."""
        self._record(self._pieces(unit.seed) / f"{unit.part}-{piece}.json", make)

    def record_references(self, make: Callable[[], Tables]) -> None:
        """Write the rows that need no training, unless they are there already."""
        self._record(self.path / "references.json", make)

    def assemble(self) -> None:
        """Write the record tables from every piece there is.

        Raises:
            SoulsGraphError: if a piece is damaged.
            WriteError: if the folder cannot be written.
        """
        files = [self.path / "references.json"]
        files += [file for seed in self.protocol.seeds for file in sorted(self._pieces(seed).glob("*.json"))]
        pieces = [_read_piece(file) for file in files if file.exists()]
        for table, columns in COLUMNS.items():
            rows = [row for piece in pieces for row in piece.get(table, [])]
            kept = [{"preset": self.protocol.preset, **row} for row in rows]
            write_rows(
                self.path / "records" / f"{table}.parquet", [{name: row[name] for name in columns} for row in kept]
            )

    def add_wall_time(self, seconds: float) -> None:
        """Add to the time that the reproduction has taken, over all its interruptions."""
        values = read_json(self.path / DESCRIPTION, _REMEDY)
        spent = round(float(values["wall_time_s"]) + seconds, 1)
        self._describe({"started": values["started"], "wall_time_s": spent})

    def _describe(self, times: dict[str, Any]) -> None:
        header = {"format": _FORMAT, "version": _VERSION, "plan": self.protocol.to_dict()}
        versions = {"python": platform.python_version(), **package_versions()}
        write_json(self.path / DESCRIPTION, {**header, "versions": versions, "machine": describe_machine(), **times})

    def _pieces(self, seed: int) -> Path:
        return self.path / "seeds" / str(seed) / "pieces"

    def _record(self, file: Path, make: Callable[[], Tables]) -> None:
        if not file.exists():
            write_json(file, make())


def describe_machine() -> dict[str, Any]:
    """Give the processor, its cores, and the system, as far as they are known."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"processor": model, "cores": os.cpu_count() or 1, "system": platform.platform()}


def _read_piece(file: Path) -> dict[str, Any]:
    piece = read_json(file, "remove it and go on with --resume")
    if not isinstance(piece, dict):
        raise SoulsGraphError(f"{file}: expected an object, found {piece!r:.40}; remove it and go on with --resume.")
    return piece
