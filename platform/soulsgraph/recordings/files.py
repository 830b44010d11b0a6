"""A recording on the disk: one Parquet file a fight, written whole, and checked when it is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from soulsgraph.recordings.format import CONTROLS, FORMAT, FORMAT_VERSION, HEADER_KEY, READINGS, SEEN, Header, schema_of
from soulsgraph.results.tables import opened_parquet
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.config import Where, check_fields, parse, to_json, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, reading, shown
from soulsgraph_envs.core.files import WriteError, whole_file
from soulsgraph_envs.core.scenario import HitWindow
from soulsgraph_envs.core.state import Controls, Raw, RawValues
from soulsgraph_envs.simulator.scene import Activity, Area, Change, Scene, banner_of, hp_windows, progress_of

SUFFIX = ".parquet"
#: A file that is read at most: a fight of an hour takes some 20 MB.
MOST_BYTES = 2**28
_LONGEST_TEXT = 4096
_HEADER_TEXTS = ("fight", "scenario", "start", "driver", "player", "map", "game_version")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,150}")


class RecordingError(SoulsGraphError):
    """A file is no recording of a fight, or a damaged one."""

    def __init__(self, path: Path, expected: str, found: object, remedy: str = "record the fight again") -> None:
        super().__init__(f"{path}: expected {expected}, found {found}", remedy)


def write_table(folder: Path, header: Header, known: Mapping[str, Any]) -> Path:
    """Write a fight as `<fight>.parquet` into a folder and return its path; columns that are not `known` have no value.

    Raises:
        RecordingError: if the fight's name cannot be a file's, or a file of that name is there.
        WriteError: if the place cannot be written.
    """
    path, schema, rows = check_new(folder, header), schema_of(header), header.result.steps + 1
    filled = {one.name: known[one.name] if one.name in known else pa.nulls(rows, one.type) for one in schema}
    table = pa.table(filled, schema=schema).replace_schema_metadata({HEADER_KEY: to_json(to_table(header)).encode()})
    try:
        with whole_file(path, replace=False) as temporary, temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    except WriteError:
        # Another process was there first.
        check_new(folder, header)
        raise
    return path


def check_new(folder: Path, header: Header) -> Path:
    """Return the path of a new fight, whose header is refused as `write_table` refuses it.

    Raises:
        SoulsGraphError: naming the field, or the file that is there.
    """
    path = _path_of(folder, header.fight)
    if path.exists():
        raise RecordingError(path, "no file of that name", "one, which is never overwritten", "choose another folder")
    check_fields(header)
    _check_header(Where(None, remedy="choose another name"), header)
    return path


def is_written(folder: Path, header: Header, but_for: Collection[str]) -> bool:
    """Return whether a fight's file is there already, its header the same but for some fields.

    Raises:
        RecordingError: if the file there is damaged, or of a fight under other conditions.
    """
    path = _path_of(folder, header.fight)
    if not path.exists():
        return False
    kept, expected = to_table(read_header(path)), to_table(header)
    for name in expected.keys() - set(but_for):
        if kept.get(name) != expected[name]:
            other = f"one with another {name}, which is never overwritten"
            raise RecordingError(path, "no file of that name, or the same fight", other, "choose another folder")
    return True


def _path_of(folder: Path, fight: str) -> Path:
    if not _NAME.fullmatch(fight) or fight.startswith("."):
        raise RecordingError(
            folder, "letters, digits, dots and dashes as the name of a fight", repr(fight), "rename it"
        )
    return folder / f"{fight}{SUFFIX}"


def recording_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder and of those in it, or the one file named, in the order of their names.

    Raises:
        RecordingError: if there is none.
    """
    with reading(folder):
        # A journal's fights lie in a folder for each skill.
        inside = [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*{SUFFIX}")]
        files = [folder] if folder.is_file() else sorted(inside, key=lambda path: path.relative_to(folder).parts)
    if not files:
        missing = "none" if folder.is_dir() else "no such folder"
        raise RecordingError(folder, f"a folder with recorded fights (*{SUFFIX})", missing, "record some first")
    return files


def read_header(path: Path) -> Header:
    """Read what a recording says of its fight, without its ticks.

    Raises:
        RecordingError: if it is no recording of a fight, or a damaged one.
        ReadError: if it cannot be read.
    """
    with _opened(path) as file:
        return _header_of(path, file)


def read_recording(path: Path) -> Recording:
    """Read a whole recording; raises as `read_header` does."""
    with _opened(path) as file:
        header = _header_of(path, file)
        table = file.read(use_threads=False)
        table.validate(full=True)
        if (rows := header.result.steps + 1) != len(table):
            raise RecordingError(path, f"{rows} rows", len(table))
        for column, values in zip(table.schema, table.columns, strict=True):
            if values.null_count and not column.nullable:
                raise RecordingError(path, f"a value in every row of {column.name}", f"{values.null_count} without")
        return Recording(path, header, table.cast(schema_of(header)))


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of bounded size; whatever its reader finds wrong with it is one line."""
    try:
        with reading(path):
            if (size := path.stat().st_size) > MOST_BYTES:
                raise RecordingError(path, f"at most {MOST_BYTES / 2**20:.0f} MiB", f"{size / 2**20:.0f} MiB")
        with opened_parquet(path, lambda found: damaged(path, found)) as file:
            yield file
    except FileNotFoundError as error:
        raise RecordingError(path, "a recorded fight", "no such file", "correct the path") from error


def damaged(path: Path, found: str) -> RecordingError:
    """Return the one line for a file in which something is wrong that its reader did not expect."""
    return RecordingError(path, "a recorded fight as Parquet", f"a damaged or other file ({found})")


def _header_of(path: Path, file: pq.ParquetFile) -> Header:
    metadata = file.schema_arrow.metadata or {}
    if HEADER_KEY not in metadata:
        raise RecordingError(path, "a recorded fight", "a Parquet file of something else", "move it elsewhere")
    where = Where(path, remedy="record the fight again")
    values = parse(metadata[HEADER_KEY].decode(), "JSON", where)
    found = (values.get("format"), values.get("format_version")) if isinstance(values, dict) else None
    where.demand(found == (FORMAT, FORMAT_VERSION), f"a header of format {FORMAT!r} {FORMAT_VERSION}", found)
    header = validate(Header, values, where)
    _check_header(where, header)
    if not (header.seed == "" or (header.seed.isdecimal() and int(header.seed) < 2**64)):
        raise where.at("seed").error("a whole number of 64 bits", header.seed[:30])
    expected = schema_of(header)
    if not file.schema_arrow.equals(expected):
        names = sorted(set(expected.names) ^ set(file.schema_arrow.names))
        others = f"others: {shown(', '.join(names)[:80])}" if names else "columns of other types"
        raise RecordingError(path, "the columns of its header", others)
    return header


def _check_header(where: Where, header: Header) -> None:
    """Refuse texts that would move a terminal's cursor, places on other machines, and columns of the same name."""
    texts = {name: getattr(header, name) for name in _HEADER_TEXTS}
    texts |= {f"origin.{name}": str(value) for name, value in vars(header.origin).items()}
    texts |= {f"skills[{index}].name": skill.name for index, skill in enumerate(header.skills)}
    texts |= {f"project.{name}": value for name, value in (vars(header.project) if header.project else {}).items()}
    for name, text in texts.items():
        where.at(name).demand(text.isprintable() and len(text) <= _LONGEST_TEXT, "a line of text", shown(text))
    # Windows asks another machine, or a device, for a file with such a path.
    elsewhere = header.scenario.replace("\\", "/").startswith("//")
    where.at("scenario").demand(not elsewhere, "a name, or a path on this machine", shown(header.scenario))
    columns = schema_of(header).names
    where.at("skills").demand(
        len({*columns}) == len(columns), "skills and reward terms of different names", "two alike"
    )


@dataclass(frozen=True)
class Recording:
    """One recorded fight: its header, and a row for the start of every tick, with one more for the end.

    A row holds what was read as its tick began, and what was done in that tick. A fleet's fight has a row for the start
    of every decision instead.
    """

    path: Path
    header: Header
    table: pa.Table

    def __len__(self) -> int:
        """Count its ticks, or decisions of a fleet's fight: one less than its rows."""
        return self.header.result.steps

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column as an array: (rows,), or (rows, size) of a column of lists; missing numbers are NaN.

        Raises:
            UnknownNameError: if there is no such column.
        """
        if name not in self.table.column_names:
            raise UnknownNameError("column", name, self.table.column_names)
        column = self.table.column(name).combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            values = column.flatten().to_numpy(zero_copy_only=False)
            return np.asarray(values.reshape(len(column), column.type.list_size))
        return np.asarray(column.to_numpy(zero_copy_only=False))

    @cached_property
    def raw(self) -> RawValues:
        """The raw values as a game gave them, (rows, 25); NaN where the source has none."""
        return np.column_stack([self.column(column.name).astype(np.float64) for column in READINGS.values()])

    @property
    def unfilled_hp(self) -> Doubles:
        """The player's HP before a training scenario refilled it, (rows,); NaN where nobody knows."""
        hp, unfilled = self.raw[:, Raw.PLAYER_HP], self.column("player_hp_unfilled").astype(np.float64)
        return np.where(np.isnan(unfilled), np.nan if self.header.ground.refill else hp, unfilled)

    @cached_property
    def controls(self) -> Controls:
        """The controls of every tick as bits, (rows,); none in the last row."""
        bits = np.zeros(len(self) + 1, np.uint32)
        for control, column in CONTROLS.items():
            bits |= np.where(self.column(column.name), np.uint32(control), np.uint32(0))
        return bits

    def decisions(self, skill: str) -> tuple[Integers, Integers]:
        """Return the rows at which decisions of a skill begin that came to an end, and those of their ends, (n,) each.

        Raises:
            UnknownNameError: if the skill took no part.
        """
        begins = np.flatnonzero(self.column(f"{skill}/decides"))
        ends = np.append(begins[1:], len(self))[: len(begins)]
        over: Flags = ~np.isnan(self.column(f"{skill}/reward")[begins])
        return begins[over], ends[over]

    @cached_property
    def _seen(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.select([column.name for column in SEEN]).to_pylist()
        return rows

    def scene(self, row: int) -> Scene:
        """Return what a picture of a row shows; of a running game that is what its readings say alone."""
        ground, raw = self.header.ground, self.raw[row]
        seen = {name: value for name, value in self._seen[row].items() if value is not None}
        number = seen.get("phase") or ground.phases[0].phase
        phase = next((phase for phase in ground.phases if phase.phase == number), ground.phases[0])
        player, boss = (
            Activity(
                seen.get(f"{who}_doing", seen.get(f"{who}_animation_name", "")),
                progress_of(raw, Raw[f"{who.upper()}_ANIMATION"]),
                tuple((part["first"], part["last"]) for part in seen.get(f"{who}_parts", ())),
                seen.get(f"{who}_moment", -1.0),
            )
            for who in ("player", "boss")
        )
        player_change, boss_change = (
            Change(seen.get(f"{who}_change", 0.0), seen.get(f"{who}_change_age_s", inf)) for who in ("player", "boss")
        )
        return Scene(
            raw=raw.copy(),
            arena=ground.arena,
            radii_m=(ground.player_radius_m, phase.radius_m),
            boss_name=phase.boss,
            phase=number,
            boss=boss,
            player=player,
            areas=tuple(_area(area) for area in seen.get("hit_areas", ())),
            until_hit_s=seen.get("until_hit_s", inf),
            invulnerable=seen.get("invulnerable", False),
            view_rad=ground.view_rad,
            lock_range_m=ground.lock_range_m,
            build_up=seen.get("build_up", 0.0),
            status="" if phase.status == "none" else phase.status,
            hp_windows=hp_windows(ground),
            banner=banner_of(raw, ground),
            player_change=player_change,
            boss_change=boss_change,
        )


def _area(area: dict[str, Any]) -> Area:
    window = HitWindow((0.0, 0.0), area["reach_m"], area["half_arc_rad"], 0.0, offset_m=area["offset_m"])
    return Area(window, area["winding_up"], area["open"])
