"""The address map of one game version: a TOML file that says where each field lies, and the module it is for."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

from soulsgraph_envs.core.config import Between, NonEmpty, Pair, load_data, require
from soulsgraph_envs.core.errors import GameError, plain_range
from soulsgraph_envs.games.link import FIELDS

#: The first page of an image holds its header.
HEADER_SIZE = 4096
_EXECUTABLE = 0x20000000
_RESOURCES = 2
_WORD = re.compile(r"\?\?|[0-9A-Fa-f]{2}")
_FEWEST_FIXED = 3


class Section(NamedTuple):
    """A section: its name, distance from the image's start, bytes in memory, and whether it is code."""

    name: str
    rva: int
    size: int
    executable: bool


class PeHeader(NamedTuple):
    """What a loader reads: the image's size, its sections, and its resources (rva, size)."""

    size_of_image: int
    sections: tuple[Section, ...]
    resources: tuple[int, int]


def parse_header(data: bytes) -> PeHeader | None:
    """Parse the first bytes of a 64-bit image; None if they are no whole header of one."""
    try:
        (at,) = struct.unpack_from("<I", data, 0x3C)
        signature, _, count, optional_size, magic, size = struct.unpack_from("<4s2H12xH2xH54xI", data, at)
        if data[:2] != b"MZ" or signature != b"PE\0\0" or magic != 0x20B:
            return None
        resources = struct.unpack_from("<2I", data, at + 24 + 112 + 8 * _RESOURCES)
        table = at + 24 + optional_size
        sections = tuple(_section(data, table + 40 * number) for number in range(count))
    except struct.error:
        return None
    return PeHeader(size, sections, resources)


def _section(data: bytes, at: int) -> Section:
    name, size, rva, rights = struct.unpack_from("<8s2I20xI", data, at)
    return Section(name.rstrip(b"\0").decode("latin-1"), rva, size, bool(rights & _EXECUTABLE))


def is_pattern(text: str) -> bool:
    """Return whether a text is bytes and `??`, separated by blanks, with enough fixed bytes to search for."""
    words = text.split()
    fixed = sum(word != "??" for word in words)
    return fixed >= _FEWEST_FIXED and all(_WORD.fullmatch(word) for word in words)


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Turn a pattern into an expression over bytes; raises `ValueError` if it is no pattern."""
    if not is_pattern(text):
        raise ValueError(f"expected bytes such as '48 8B 05 ?? ??', found {text!r}")
    parts = (b"." if word == "??" else re.escape(bytes.fromhex(word)) for word in text.split())
    return re.compile(b"".join(parts), re.DOTALL)


Kind = Literal["i32", "u32", "f32", "u8", "bit", "utf16"]
#: Format characters of the numeric types; of a bit, that of the byte it lies in.
FORMATS: Mapping[str, str] = {"i32": "i", "u32": "I", "f32": "f", "u8": "B", "bit": "B"}
_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "u8": (0, 255), "bit": (0, 1)}
_LARGEST_F32 = 3.4028234663852886e38
_Offset = Annotated[int, Between(0, 2**31)]
#: Bytes of a displacement in a 64-bit instruction.
DISPLACEMENT_SIZE = 4


def pack(kind: str, value: float) -> bytes:
    """Return a number's bytes, rounded for integer types; raises `GameError` if it is not finite or does not fit."""
    low, high = _RANGES.get(kind, (-_LARGEST_F32, _LARGEST_F32))
    if not isfinite(value) or not low <= value <= high:
        raise GameError(
            f"a value to write: expected one of {kind} from {plain_range(low, high)}, found {value}; correct it."
        )
    return struct.pack("<" + FORMATS[kind], value if kind == "f32" else round(value))


def unpack(kind: str, data: bytes) -> float:
    """Return the number of its bytes."""
    return float(struct.unpack("<" + FORMATS[kind], data)[0])


def decode_text(data: bytes) -> str:
    """Return a UTF-16 text up to its NUL; invalid bytes become a replacement character."""
    return data.decode("utf-16-le", "replace").split("\0", 1)[0]


@dataclass(frozen=True, kw_only=True)
class FieldEncoding:
    """How a field is stored: its type and unit; its value is the stored number times `scale`."""

    type: Kind
    scale: float = 1.0
    #: Which bit of the byte, of type "bit".
    bit: Annotated[int, Between(-1, 7)] = -1
    #: Bytes of the text, of type "utf16".
    room: Annotated[int, Between(0, 256)] = 0

    def __post_init__(self) -> None:
        require((self.type == "bit") == (self.bit >= 0), "bit", "be there for the type 'bit' and for no other")
        even = (self.type == "utf16") == (self.room > 0) and self.room % 2 == 0
        require(even, "room", "be even, for the type 'utf16' and for no other")
        require(self.scale != 0.0, "scale", "not be 0")

    @cached_property
    def size(self) -> int:
        """Return the bytes that the field takes."""
        return self.room or struct.calcsize(FORMATS[self.type])

    def decode(self, data: bytes) -> float | str:
        """Return the value of the field's bytes."""
        if self.type == "utf16":
            return decode_text(data)
        return float(data[0] >> self.bit & 1) if self.type == "bit" else unpack(self.type, data) * self.scale

    def encode(self, value: float | str, before: bytes | memoryview = b"\0") -> bytes:
        """Return a value's bytes, of a bit the byte `before` with it set or cleared; raises as `pack`."""
        if self.type == "utf16":
            return str(value).encode("utf-16-le")[: self.room].ljust(self.room, b"\0")
        data = pack(self.type, float(value) / self.scale)
        return data if self.type != "bit" else bytes([before[0] & ~(1 << self.bit) | data[0] << self.bit])


class Chain(NamedTuple):
    """Lead from a base, through the pointer at each offset but the last, to an address."""

    base: str
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Base:
    """One global of the game: the instruction that names it, its fixed distance, or both.

    The target of a match is match + length + the displacement at match + displacement_at. It holds
    the pointer that chains start from, or is itself their start if not `dereference`.
    """

    pattern: str = ""
    displacement_at: Annotated[int, Between(0, 64)] = 3
    length: Annotated[int, Between(0, 64)] = 7
    #: Distance from the start of the module; 0 if no source gives one.
    rva: _Offset = 0
    dereference: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        require(bool(self.pattern or self.rva), "pattern", "be there, or an rva")
        if self.pattern:
            require(is_pattern(self.pattern), "pattern", "be bytes such as '48 8B 05 ?? ??'")
            end = self.displacement_at + DISPLACEMENT_SIZE
            inside = end <= min(self.length, len(self.pattern.split()))
            require(inside, "displacement_at", "be of four bytes inside the instruction and the pattern")


@dataclass(frozen=True)
class Walk:
    """Find a character by its name in the loaded blocks of the world.

    The object of `base` has pointers to `most_blocks` blocks; an entry of a block begins with a character's pointer.
    """

    name: str = ""
    base: str = ""
    count_at: _Offset = 0
    blocks_at: _Offset = 0
    most_blocks: Annotated[int, Between(0, 1024)] = 0
    capacity_at: _Offset = 0
    entries_at: _Offset = 0
    entry_size: Annotated[int, Between(0, 4096)] = 0
    #: From a character to its name.
    name_offsets: tuple[_Offset, ...] = ()
    name_bytes: Annotated[int, Between(0, 256)] = 0

    def __post_init__(self) -> None:
        whole = bool(self.name_offsets and self.entry_size and self.most_blocks and self.name_bytes)
        require(whole or not self.name, "name", "have name_offsets, name_bytes, entry_size and most_blocks beside it")


@dataclass(frozen=True)
class Character:
    """A character: the chain to its pointer, and the walk that is tried before the chain if there is one."""

    base: str
    offsets: NonEmpty[_Offset]
    walk: Walk = Walk()


@dataclass(frozen=True)
class TracedField:
    """A field by the chain that leads to it."""

    base: str
    offsets: NonEmpty[_Offset]
    source: str = ""
    #: Whether a public source confirms it; one that is not names what serves instead.
    verified: bool = True
    fallback: str = ""

    def __post_init__(self) -> None:
        require(bool(self.verified or self.fallback), "fallback", "say what serves instead, as it is not verified")


@dataclass(frozen=True)
class Entry(TracedField, FieldEncoding):
    """One field: its chain, and how it is stored."""

    def __post_init__(self) -> None:
        TracedField.__post_init__(self)
        FieldEncoding.__post_init__(self)


@dataclass(frozen=True)
class ItemList:
    """One list of an inventory: the offsets of its capacity (u32) and of the pointer to its entries."""

    capacity_at: _Offset
    entries_at: _Offset


@dataclass(frozen=True, kw_only=True)
class Inventory(TracedField):
    """A field that is the quantity of an item in some lists, which have gaps: their whole capacity is searched.

    The chain leads to the pointer of the object that holds the lists.
    """

    lists: NonEmpty[ItemList]
    entry_size: Annotated[int, Between(1, 4096)]
    #: Where an entry has its item's id and its quantity.
    item_at: Annotated[int, Between(0, 4096)]
    quantity_at: Annotated[int, Between(0, 4096)]
    #: First and last item id.
    items: Pair[Annotated[int, Between(0, 2**32 - 1)]]

    def quantities(self, data: bytes) -> dict[int, int]:
        """Return the quantity in each entry that holds the item, by the entry's number in a list's bytes."""
        offsets = [self.item_at, self.quantity_at]
        entry = np.dtype(
            {"names": ["item", "quantity"], "formats": ["<u4"] * 2, "offsets": offsets, "itemsize": self.entry_size}
        )
        entries, (first, last) = np.frombuffer(data, entry, len(data) // self.entry_size), self.items
        held = np.flatnonzero((entries["item"] >= first) & (entries["item"] <= last))
        return dict(zip(held.tolist(), entries["quantity"][held].tolist(), strict=True))


@dataclass(frozen=True)
class AddressMap:
    """The addresses of one version of a game."""

    name: str
    game: str
    #: File version of the executable; empty if it has none.
    version: str
    #: Name of the executable, which is the module that patterns are searched in too.
    process: str
    window: str
    bindings: str
    #: Source of every entry that names none of its own.
    source: str
    bases: dict[str, Base]
    fields: dict[str, Entry]
    characters: dict[str, Character] = field(default_factory=dict)
    inventories: dict[str, Inventory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, character in self.characters.items():
            place = f"characters.{key}"
            require(key not in self.bases, place, "have a name that no base has")
            _require_start(character.base, self.bases, place)
            if character.walk.name:
                _require_start(character.walk.base, self.bases, f"{place}.walk")
        for kind, items in (("fields", self.fields), ("inventories", self.inventories)):
            for key, item in items.items():
                place = f"{kind}.{key}"
                require(key in FIELDS, place, "be a field of soulsgraph_envs.games.link")
                _require_start(item.base, [*self.bases, *self.characters], place)
                if isinstance(item, Entry):
                    text = FIELDS[key].kind == "text"
                    require((item.type == "utf16") == text, f"{place}.type", "be utf16 for a text alone")
                else:
                    require(key not in self.fields, place, "not be in fields as well")

    def entry(self, name: str) -> Entry | Inventory:
        """Return the entry of a field."""
        return self.fields.get(name) or self.inventories[name]

    def chain(self, name: str) -> Chain:
        """Return the chain of a field or an inventory from a true base, characters replaced by their own chain."""
        entry = self.entry(name)
        return self.absolute(entry.base, entry.offsets)

    def absolute(self, base: str, offsets: tuple[int, ...]) -> Chain:
        """Return a chain from a true base for one that may start at a character."""
        character = self.characters.get(base)
        return Chain(character.base, character.offsets + offsets) if character else Chain(base, offsets)

    def readable(self) -> frozenset[str]:
        """Return the fields that can be read."""
        return frozenset((*self.fields, *self.inventories))

    def writable(self) -> frozenset[str]:
        """Return the readable fields that may be written."""
        return frozenset(name for name in self.readable() if FIELDS[name].writable)


def load_address_map(name_or_path: str | Path) -> AddressMap:
    """Load the map of one game version, shipped or the user's own.

    Raises:
        UnknownNameError: if no shipped map has that name.
        DataError: for a missing, misspelt, mistyped, out-of-range or contradictory value.
    """
    return load_data("address map", AddressMap, name_or_path)


def _require_start(base: str, starts: Collection[str], place: str) -> None:
    require(base in starts, f"{place}.base", f"be one of {', '.join(starts)}, found {base!r}")
