"""A recording as a Parquet file: its columns, and what decoding it would take, known before anything is decoded.

Names, types, units and meaning of columns are in the file's schema too. Few bytes may stand for millions of equal
values, or for a long list in one row. How many they are is said in the footer and before each page, in Thrift's compact
protocol. It is read here: Arrow ends the process on some damaged footers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from soulsgraph.recordings.header import Header, PlayedSkill
from soulsgraph_envs.core.state import Control, Raw

#: Key of the header among the file's metadata, and of the digest over header and columns.
HEADER_KEY, DIGEST_KEY = b"soulsgraph_fight", b"soulsgraph_digest"
_UNIT, _MEANING = b"unit", b"description"


def _struct(**fields: pa.DataType) -> pa.DataType:
    """Return a type of named values, none of which may be missing, nor the whole in a list."""
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


#: A share of an animation's length, from 0 to 1.
PART = _struct(first=pa.float64(), last=pa.float64())
#: A sector in front of the boss that a blow strikes.
AREA = _struct(
    reach_m=pa.float64(), half_arc_rad=pa.float64(), offset_m=pa.float64(), winding_up=pa.float64(), open=pa.bool_()
)


@dataclass(frozen=True)
class ColumnType:
    """One column: its name, Arrow type, unit, and what it means."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        """The column as a field of an Arrow schema."""
        metadata = {_UNIT: self.unit.encode(), _MEANING: self.meaning.encode()}
        return pa.field(self.name, self.type, self.nullable, metadata)


_WHO = {"PLAYER": "the player", "BOSS": "the boss", "CAMERA": "the camera"}


def _reading(raw: Raw) -> ColumnType:
    """Return the column of a raw value."""
    name = raw.name.lower()
    who, _, what = raw.name.partition("_")
    if raw == Raw.LOCKED:
        return ColumnType(name, pa.bool_(), "", "whether the camera is locked on the boss")
    if raw == Raw.FLASKS:
        return ColumnType(name, pa.int16(), "flasks", "flasks left")
    if raw in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION):
        return ColumnType(name, pa.int32(), "", f"id of {_WHO[who]}'s animation, as the skills see it")
    if what in ("X", "Y", "Z"):
        if who == "CAMERA":
            return ColumnType(name, pa.float64(), "", f"{what.lower()} of the direction in which the camera looks")
        return ColumnType(f"{name}_m", pa.float64(), "m", f"place of {_WHO[who]}, {what.lower()} (z is up)")
    if what == "ANGLE":
        return ColumnType(f"{name}_rad", pa.float64(), "rad", f"heading of {_WHO[who]}, from -pi to pi")
    if name.endswith("_s"):
        how = "how long it has played" if "TIME" in what else "how long it is"
        return ColumnType(name, pa.float64(), "s", f"{_WHO[who]}'s animation: {how}")
    whose = "the player's stamina" if who == "STAMINA" else f"{_WHO[who]}'s HP"
    return ColumnType(name, pa.float64(), "points", f"{whose}{', full' if name.endswith('max') else ''}")


#: The column of every raw value, in the order of `Raw`.
READINGS: Mapping[Raw, ColumnType] = {raw: _reading(raw) for raw in Raw}
#: The column of every control.
CONTROLS: Mapping[Control, ColumnType] = {
    control: ColumnType(
        f"control/{(control.name or '').lower()}",
        pa.bool_(),
        "",
        f"whether {(control.name or '').lower()} is held or pressed in this tick",
    )
    for control in Control
    if control
}
#: Constant in a file, so that many files can be grouped.
KEYS = (
    ColumnType("fight", pa.string(), "", "identity of the fight", nullable=False),
    ColumnType("scenario", pa.string(), "", "scenario that is fought", nullable=False),
    ColumnType("source", pa.string(), "", "simulator, game, fleet or person", nullable=False),
    ColumnType("player", pa.string(), "", "who plays: a run, an agent of the zoo, oracle, or a person", nullable=False),
    ColumnType("outcome", pa.string(), "", "how the fight ends: won, died, time over or cut", nullable=False),
)
_TIME = (
    ColumnType("tick", pa.int32(), "ticks", "control ticks since the fight began", nullable=False),
    ColumnType("time_s", pa.float64(), "s", "game time since the fight began", nullable=False),
    ColumnType("last", pa.bool_(), "", "the moment at which the fight ended, in which nothing is done", nullable=False),
)
#: What only the simulator knows, and what the data say of an animation.
SEEN = (
    ColumnType("player_animation_name", pa.string(), "", "the game's name of the player's animation"),
    ColumnType("boss_animation_name", pa.string(), "", "the game's name of the boss's animation"),
    ColumnType("phase", pa.int8(), "", "phase of the boss, from 1"),
    ColumnType("player_doing", pa.string(), "", "what the player does, in words"),
    ColumnType("boss_doing", pa.string(), "", "what the boss does, in words"),
    ColumnType("player_parts", _list_of(PART), "", "invulnerable parts of the player's animation, as shares"),
    ColumnType("boss_parts", _list_of(PART), "", "hit windows of the boss's animation, as shares"),
    ColumnType("player_moment", pa.float64(), "", "when a blow lands or a flask heals, as a share; -1 for never"),
    ColumnType("hit_areas", _list_of(AREA), "", "where the boss strikes now (open), or after its wind-up"),
    ColumnType("until_hit_s", pa.float64(), "s", "until the next hit window opens; infinite where none comes"),
    ColumnType("invulnerable", pa.bool_(), "", "whether nothing can hit the player now"),
    ColumnType("player_change", pa.float64(), "points", "the last change of the player's HP, below 0 for a blow"),
    ColumnType("player_change_age_s", pa.float64(), "s", "how long ago that was"),
    ColumnType("boss_change", pa.float64(), "points", "the last change of the boss's HP"),
    ColumnType("boss_change_age_s", pa.float64(), "s", "how long ago that was"),
    ColumnType("build_up", pa.float64(), "", "status effect built up, from 0 to 1"),
)


#: Every column but those of skills, in order.
FIGHT_COLUMNS = (*KEYS, *_TIME, *READINGS.values(), *SEEN, *CONTROLS.values())
#: The columns of texts, none of which belongs to a skill.
TEXTS = tuple(column.name for column in FIGHT_COLUMNS if column.type == pa.string())


def skill_columns(skill: PlayedSkill) -> Iterator[ColumnType]:
    """Yield the columns of one skill, all named `<skill>/...`."""
    names, size = ", ".join(skill.observation), len(skill.observation)
    floats, actions = pa.float32(), ", ".join(skill.actions)
    of = skill.name
    yield ColumnType(f"{of}/version", pa.int32(), "", "version of the network that plays; -1 for none", nullable=False)
    yield ColumnType(f"{of}/decides", pa.bool_(), "", "whether a decision begins with this tick", nullable=False)
    yield ColumnType(f"{of}/action", pa.int16(), "", f"action under way, -1 for none: {actions}", nullable=False)
    yield ColumnType(f"{of}/random", pa.bool_(), "", "whether that action was drawn at random; null: not known")
    yield ColumnType(f"{of}/observation", pa.list_(floats, size), "", f"what it observes: {names}", nullable=False)
    if skill.valued:
        values = pa.list_(floats, len(skill.actions))
        yield ColumnType(f"{of}/values", values, "", f"Q-values of that observation: {actions}", nullable=False)
    whole = "of the decision that begins here; null where none begins, or none came to its end"
    yield ColumnType(f"{of}/reward", floats, "", f"reward {whole}")
    for term in skill.terms:
        yield ColumnType(f"{of}/term/{term}", floats, "", f"reward term {term} {whole}")


def columns(header: Header) -> tuple[ColumnType, ...]:
    """Return every column of a fight's file, in order."""
    skills = [column for skill in header.skills for column in skill_columns(skill)]
    return (*FIGHT_COLUMNS, *skills)


def schema_of(header: Header) -> pa.Schema:
    """Return the Arrow schema of a fight's file, units and meanings in each field's metadata."""
    return pa.schema([column.field for column in columns(header)])


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
    found = unpacked = 0
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
            found, encoding = found + _positive(header, 1), header[2 if kind == _DATA_PAGE else 4]
        else:
            raise PagesError("pages of values and dictionaries", f"one of kind {kind} in {name}")
        if encoding not in _ENCODINGS:
            raise PagesError("plain values or a dictionary", f"encoding {encoding} in {name}")
    if found != expected:
        raise PagesError(f"{expected:,} values in {name}, as the footer says", f"{found:,} in its pages")
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
