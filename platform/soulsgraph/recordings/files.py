"""A recording on the disk: one Parquet file a fight, written whole, and checked when it is read.

Few bytes may stand for millions of equal values, or for a long list in one row. How many they are is said in the footer
and before each page, in Thrift's compact protocol. It is read here, before anything is decoded: Arrow ends the process
on some damaged footers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from soulsgraph.recordings.format import (
    CONTROLS,
    DIGEST_KEY,
    FORMAT,
    FORMAT_VERSION,
    HEADER_KEY,
    KEYS,
    READINGS,
    SEEN,
    TEXTS,
    Ground,
    Header,
    columns,
    schema_of,
)
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.config import Where, check_fields, parse, read_table, to_json, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, reading, shown
from soulsgraph_envs.core.files import WriteError, whole_file
from soulsgraph_envs.core.scenario import HitWindow
from soulsgraph_envs.core.state import Controls, Raw, RawValues
from soulsgraph_envs.simulator.scene import Activity, Area, Change, Scene, banner_of, hp_windows, progress_of

T = TypeVar("T")

SUFFIX = ".parquet"
#: Limits of what is read: a fight of an hour has 36,000 ticks, and takes some 20 MB.
MOST_BYTES, MOST_TICKS, MOST_HEADER_BYTES = 2**28, 1_000_000, 2**20
#: An hour takes some 80 MB in memory; a number counts as 8 bytes.
_MOST_UNPACKED_BYTES = 2**29
_LONGEST_TEXT, _LONGEST_LIST, _ROWS_AT_ONCE = 4096, 1000, 4096
_HEADER_TEXTS = ("fight", "scenario", "start", "driver", "player", "map", "game_version")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,150}")


class RecordingError(SoulsGraphError):
    """A file is no recording of a fight, or a damaged one."""

    def __init__(self, path: Path, expected: str, found: object, remedy: str = "record the fight again") -> None:
        super().__init__(f"{path}: expected {expected}, found {found}", remedy)


def write_table(folder: Path, header: Header, table: pa.Table) -> Path:
    """Write a fight as `<fight>.parquet` into a folder, and return its path.

    Raises:
        RecordingError: if the fight's name cannot be a file's, or a file of that name is there.
        WriteError: if the place cannot be written.
    """
    check_new(folder, header)
    path = free_path(folder, header.fight)
    text = to_json(to_table(header))
    metadata = {HEADER_KEY: text.encode(), DIGEST_KEY: _digest(text)}
    try:
        with whole_file(path, replace=False) as temporary, temporary.open("wb") as file:
            written = table.replace_schema_metadata(metadata)
            pq.write_table(written, file, compression="zstd", write_page_checksum=True)
    except WriteError:
        # Another process was there first.
        free_path(folder, header.fight)
        raise
    return path


def check_new(folder: Path, header: Header) -> None:
    """Refuse the header of a new fight that `write_table` would refuse.

    Raises:
        SoulsGraphError: naming the field, or the file that is there.
    """
    free_path(folder, header.fight)
    check_columns(folder, header)
    check_fields(header)
    _check_header(Where(None, remedy="choose another name"), header)


def check_columns(folder: Path, header: Header) -> None:
    """Refuse a fight whose columns are others than those of the fights in a folder.

    Tools that read a folder as one table take the first file's columns, and drop the others without a word.

    Raises:
        RecordingError: naming a fight that is there, and a column that only one of the two has.
    """
    if (differing := _differing(folder, header)) is not None:
        raise RecordingError(
            folder,
            f"fights with the columns of this one of {header.player}",
            "{}, whose {} is another or missing".format(*differing),
            "choose another folder: tools that read one as a table drop what its first file lacks",
        )


def folder_for(folder: Path, header: Header, name: str) -> Path:
    """Return the folder for a series of fights: `folder`, or one in it of this name, if other columns are there.

    Raises:
        RecordingError: as `check_columns`, if there are fights of yet other columns in that one.
    """
    if _differing(folder, header) is None:
        return folder
    check_columns(folder / name, header)
    return folder / name


def _differing(folder: Path, header: Header) -> tuple[str, str] | None:
    """Return a fight of a folder and a column that only it or a new fight has, or of another type; None for none."""
    if (other := _first_readable(folder)) is None:
        return None
    own, there = ({column.name: column.type for column in columns(one)} for one in (header, other))
    different = [name for name in {**own, **there} if own.get(name) != there.get(name)]
    return (other.fight, different[0]) if different else None


def _first_readable(folder: Path) -> Header | None:
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        with suppress(SoulsGraphError):
            return read_header(path)
    return None


def free_path(folder: Path, fight: str) -> Path:
    """Return the path of a new fight's file; raises as `write_table` does."""
    path = _path_of(folder, fight)
    if path.exists():
        raise RecordingError(path, "no file of that name", "one, which is never overwritten", "choose another folder")
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


def _digest(text: str) -> bytes:
    return sha256(text.encode()).hexdigest().encode()


def recording_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder and of those in it, or the one file named, in the order of their names.

    Raises:
        RecordingError: if there is none.
    """
    with reading(folder):
        files = [folder] if folder.is_file() else _files_of(folder)
    if not files:
        missing = "none" if folder.is_dir() else "no such folder"
        raise RecordingError(folder, f"a folder with recorded fights (*{SUFFIX})", missing, "record some first")
    return files


def _files_of(folder: Path) -> list[Path]:
    # Fights of other columns lie in folders of their own.
    files = [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*{SUFFIX}")]
    return sorted(files, key=lambda path: path.relative_to(folder).parts)


def read_header(path: Path) -> Header:
    """Read what a recording says of its fight, without its ticks.

    Raises:
        RecordingError: if it is no recording of a fight, or a damaged one.
        ReadError: if it cannot be read.
    """
    with _opened(path) as (file, _):
        return _header_of(path, file)


def read_recording(path: Path) -> Recording:
    """Read a whole recording; raises as `read_header` does."""
    with _opened(path) as (file, content):
        header = _header_of(path, file)
        rows = header.result.steps + 1
        if file.metadata.num_rows != rows:
            raise RecordingError(path, f"{rows} rows", file.metadata.num_rows)
        schema, batches, unpacked = schema_of(header), [], 0
        # A few bytes may stand for millions of equal numbers, or for a list of millions in one row.
        try:
            _refuse_large(path, check_pages(memoryview(content), schema, rows, _LONGEST_LIST))
        except PagesError as error:
            raise RecordingError(path, error.expected, error.found) from error
        # A text of which a file has one copy for all rows is read once too, and written out when it is known to fit.
        with pq.ParquetFile(
            pa.BufferReader(content), read_dictionary=[*TEXTS], page_checksum_verification=True
        ) as compact:
            for batch in compact.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                unpacked += _unpacked_bytes(batch)
                _refuse_large(path, unpacked)
                _check_rows(path, header, batch)
                batches.append(batch)
        table = pa.Table.from_batches(batches).cast(schema)
    if len(table) != rows:
        raise RecordingError(path, f"{rows} rows", len(table))
    return Recording(path, header, table)


def _unpacked_bytes(batch: pa.RecordBatch) -> int:
    """Return the memory that rows take once their texts, read as numbers into a dictionary, are written out."""
    texts = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    lengths = [pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0 for column in texts]
    return int(batch.nbytes) + sum(lengths)


def _check_rows(path: Path, header: Header, batch: pa.RecordBatch) -> None:
    """Refuse rows without a value that they need, of another fight than the header's, or with endless lists."""
    for spec, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not spec.nullable:
            raise RecordingError(path, f"a value in every row of {spec.name}", f"{column.null_count} without")
        if pa.types.is_list(spec.type):
            longest = pc.max(pc.list_value_length(column)).as_py() or 0
            if longest > _LONGEST_LIST:
                raise RecordingError(path, f"at most {_LONGEST_LIST:,} entries in {spec.name}", f"{longest:,}")
    for key in KEYS:
        said = header.result.outcome if key.name == "outcome" else getattr(header, key.name)
        if other := set(batch.column(key.name).unique().to_pylist()) - {said}:
            raise RecordingError(path, f"{key.name} {shown(said)} in every row, as in the header", shown(min(other)))
    lowest = pc.min(batch.column("phase")).as_py()
    if lowest is not None and lowest < 0:
        raise RecordingError(path, "phases of 0 and more", lowest)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[pq.ParquetFile, pa.Buffer]]:
    """Open a Parquet file of bounded size, with its bytes; whatever its reader finds wrong with it is one line."""
    try:
        with reading(path):
            size = path.stat().st_size
        if size > MOST_BYTES:
            raise RecordingError(path, f"at most {MOST_BYTES / 2**20:.0f} MiB", f"{size / 2**20:.0f} MiB")
        with reading(path), path.open("rb") as source:
            content = pa.py_buffer(source.read())
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            _check_size(path, file.metadata)
            yield file, content
    except FileNotFoundError as error:
        raise RecordingError(path, "a recorded fight", "no such file", "correct the path") from error
    except SoulsGraphError:
        raise
    # What damage does to a Parquet file its reader reports in many ways.
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> RecordingError:
    """Return the one line for a file in which something is wrong that its reader did not expect."""
    found = (str(error).splitlines() or [type(error).__name__])[0][:120]
    return RecordingError(path, "a recorded fight as Parquet", f"a damaged or other file ({found})")


def _check_size(path: Path, metadata: pq.FileMetaData) -> None:
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    if metadata.num_rows > MOST_TICKS:
        raise RecordingError(path, f"at most {MOST_TICKS:,} ticks", f"{metadata.num_rows:,}")
    # A group's columns are not asked: of a damaged file that ends the process. `check_pages` reads what they say.
    _refuse_large(path, sum(group.total_byte_size for group in groups))


def _refuse_large(path: Path, unpacked: int) -> None:
    if not 0 <= unpacked <= _MOST_UNPACKED_BYTES:
        expected = f"at most {_MOST_UNPACKED_BYTES / 2**20:.0f} MiB when it is unpacked"
        raise RecordingError(path, expected, f"{unpacked / 2**20:,.0f} MiB")


def _header_of(path: Path, file: pq.ParquetFile) -> Header:
    metadata = file.schema_arrow.metadata or {}
    if HEADER_KEY not in metadata:
        raise RecordingError(path, "a recorded fight", "a Parquet file of something else", "move it elsewhere")
    text = metadata[HEADER_KEY]
    if len(text) > MOST_HEADER_BYTES or metadata.get(DIGEST_KEY) != _digest(text.decode()):
        raise RecordingError(path, "the header that was written", "another one")
    where = Where(path, remedy="record the fight again", saved=True)
    values = parse(text.decode(), "JSON", where)
    found = (values.get("format"), values.get("format_version")) if isinstance(values, dict) else None
    where.demand(found == (FORMAT, FORMAT_VERSION), f"a header of format {FORMAT!r} {FORMAT_VERSION}", found)
    header = read_table(Header, values, where)
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
            values: npt.NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
            return values.reshape(len(column), column.type.list_size)
        whole: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return whole

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
        return _scene(self.header.ground, self.raw[row], self._seen[row])


def _scene(ground: Ground, raw: npt.NDArray[np.float64], seen: dict[str, Any]) -> Scene:
    number = seen["phase"] or ground.phases[0].phase
    phase = next((phase for phase in ground.phases if phase.phase == number), ground.phases[0])
    return Scene(
        raw=raw.copy(),
        arena=ground.arena,
        radii_m=(ground.player_radius_m, phase.radius_m),
        boss_name=phase.boss,
        phase=number,
        boss=_doing(seen, "boss", raw),
        player=_doing(seen, "player", raw),
        areas=tuple(_area(area) for area in seen["hit_areas"] or ()),
        until_hit_s=_or(seen["until_hit_s"], inf),
        invulnerable=bool(seen["invulnerable"]),
        view_rad=ground.view_rad,
        lock_range_m=ground.lock_range_m,
        player_change=_change(seen, "player"),
        boss_change=_change(seen, "boss"),
        build_up=_or(seen["build_up"], 0.0),
        status="" if phase.status == "none" else phase.status,
        hp_windows=hp_windows(ground),
        banner=banner_of(raw, ground),
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _doing(seen: dict[str, Any], who: str, raw: npt.NDArray[np.float64]) -> Activity:
    parts = tuple((part["first"], part["last"]) for part in seen[f"{who}_parts"] or ())
    name = _or(seen[f"{who}_doing"], seen[f"{who}_animation_name"])
    return Activity(
        name or "", progress_of(raw, Raw[f"{who.upper()}_ANIMATION"]), parts, _or(seen.get(f"{who}_moment"), -1.0)
    )


def _area(area: dict[str, Any]) -> Area:
    window = HitWindow((0.0, 0.0), area["reach_m"], area["half_arc_rad"], 0.0, offset_m=area["offset_m"])
    return Area(window, area["winding_up"], area["open"])


def _change(seen: dict[str, Any], who: str) -> Change:
    return Change(_or(seen[f"{who}_change"], 0.0), _or(seen[f"{who}_change_age_s"], inf))


#: A footer holds the header twice, and some hundred bytes of each column.
_MOST_FOOTER_BYTES = 2**22
#: An hour's fight has a few pages a column.
_MOST_PAGES = 100_000
_DEEPEST = 16
_MAGIC = b"PAR1"
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
#: Encodings in which a value takes what it is long, or is one of a dictionary: PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED
#: and RLE_DICTIONARY. In others a few bytes may stand for a long text.
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
#: A struct of Thrift: values by field number.
_Struct = dict[int, Any]


class PagesError(ValueError):
    """The numbers of a Parquet file contradict each other, or its rows would take more than they may."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found = expected, found


@dataclass
class _Compact:
    """Read Thrift's compact protocol from bytes, from a place on; nothing beyond the bytes is taken for a value."""

    data: memoryview
    place: int = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.place:
            raise PagesError("a size within the file", size)
        self.place += size
        return bytes(self.data[self.place - size : self.place])

    def byte(self) -> int:
        if self.place >= len(self.data):
            raise PagesError("numbers within the file", "its end")
        self.place += 1
        return self.data[self.place - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise PagesError("a number of 64 bits", "a longer one")

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> _Struct:
        fields: _Struct = {}
        last = 0
        while header := self.byte():
            last = last + (header >> 4) if header >> 4 else self.number()
            # Which of two a reader takes is its own affair.
            if last in fields:
                raise PagesError("each field once", f"field {last} twice")
            kind = header & 0x0F
            fields[last] = kind == 1 if kind in (1, 2) else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise PagesError(f"at most {_DEEPEST} levels", "more")
        match kind:
            case 1 | 2 | 3:
                return self.byte()
            case 4 | 5 | 6:
                return self.number()
            case 7:
                return self.take(8)
            case 8:
                return self.take(self.varint())
            case 9 | 10:
                header = self.byte()
                size = header >> 4 if header >> 4 < 15 else self.varint()
                return [self.value(header & 0x0F, depth + 1) for _ in self._times(size)]
            case 11:
                size = self.varint()
                kinds = self.byte() if size else 0
                return [
                    (self.value(kinds >> 4, depth + 1), self.value(kinds & 0x0F, depth + 1)) for _ in self._times(size)
                ]
            case 12:
                return self.struct(depth + 1)
        raise PagesError("a type of Thrift", kind)

    def _times(self, size: int) -> range:
        # Every entry takes a byte or more.
        if size > len(self.data) - self.place:
            raise PagesError("a size within the file", size)
        return range(size)


def check_pages(content: memoryview, schema: pa.Schema, rows: int, longest_list: int) -> int:
    """Check the numbers of a file of this schema and these rows, and return the bytes that it takes when it is decoded.

    A list without a fixed length has at most `longest_list` entries a row, on average. The bytes are those of all
    pages, and 8 for every value in them.

    Raises:
        PagesError: if a column has more values than that, a page other ones than the footer says, or an encoding in
            which few bytes stand for a long text.
    """
    content = content.cast("B")  # Arrow's bytes are signed ones.
    groups = _footer(content).get(4, [])
    if sum(_positive(group, 3) for group in groups) != rows:
        raise PagesError(f"row groups of {rows:,} rows together", "others")
    longest = {spec.name: _entries(spec.type, longest_list) for spec in schema}
    unpacked = 0
    for group in groups:
        for chunk in group[1]:
            if 1 in chunk:
                raise PagesError("every column in the file itself", "one in another file")
            column: _Struct = chunk[3]
            name, count = str(column[3][0], "utf-8"), _positive(column, 5)
            most = _positive(group, 3) * longest[name]
            if count > most:
                raise PagesError(f"at most {most:,} values in {name}", f"{count:,}")
            unpacked += 8 * count + _bytes_of_pages(content, name, column)
    return unpacked


def _entries(kind: pa.DataType, longest_list: int) -> int:
    """Return how many values a row of a column has at most."""
    return kind.list_size if pa.types.is_fixed_size_list(kind) else longest_list if pa.types.is_list(kind) else 1


def _footer(content: memoryview) -> _Struct:
    size = int.from_bytes(content[-8:-4], "little")
    if bytes(content[-4:]) != _MAGIC or not 0 < size <= min(len(content) - 8, _MOST_FOOTER_BYTES):
        raise PagesError(f"a footer of at most {_MOST_FOOTER_BYTES:,} bytes", f"{size:,}")
    return _Compact(content[-8 - size : -8]).struct()


def _positive(struct: Mapping[int, Any], field: int) -> int:
    value = struct[field]
    if type(value) is not int or value < 0:
        raise PagesError("a number of at least 0", value)
    return value


def _bytes_of_pages(content: memoryview, name: str, column: _Struct) -> int:
    """Return the bytes of a column's pages once they are decompressed, whose values must be as many as it says."""
    start, size, expected = _positive(column, 9), _positive(column, 7), _positive(column, 5)
    if 0 < column.get(11, 0) < start:
        start = _positive(column, 11)
    counted = unpacked = 0
    for page in _pages(content[: start + size], start):
        kind = _positive(page, 1)
        unpacked += _positive(page, 2)
        if kind == _DICTIONARY_PAGE:
            count, encoding = _positive(page[7], 1), page[7][2]
            # Every entry stands somewhere in the column.
            if count > expected:
                raise PagesError(f"at most {expected:,} entries in the dictionary of {name}", f"{count:,}")
        elif kind in (_DATA_PAGE, _DATA_PAGE_V2):
            header = page[5] if kind == _DATA_PAGE else page[8]
            counted, encoding = counted + _positive(header, 1), header[2 if kind == _DATA_PAGE else 4]
        else:
            raise PagesError("pages of values and dictionaries", f"one of kind {kind} in {name}")
        if encoding not in _ENCODINGS:
            raise PagesError("plain values or a dictionary", f"encoding {encoding} in {name}")
    if counted != expected:
        raise PagesError(f"{expected:,} values in {name}, as the footer says", f"{counted:,} in its pages")
    return unpacked


def _pages(content: memoryview, start: int) -> Iterator[_Struct]:
    """Yield the headers of the pages that lie one behind the other to the end of the bytes."""
    reader = _Compact(content, start)
    for _ in range(_MOST_PAGES):
        if reader.place >= len(content):
            return
        header = reader.struct()
        yield header
        size = _positive(header, 3)
        if size > len(content) - reader.place:
            raise PagesError("a page within the file", f"{size:,} bytes")
        reader.place += size
    raise PagesError(f"at most {_MOST_PAGES:,} pages of a column", "more")
