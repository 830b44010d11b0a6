"""Siphon's attribute file: the attributes that a server finds in the game, and how the driver reads fields from them.

`[process_info]` and `[attributes.*]` are Siphon's own format, which its clients send to a server.
`[reads.*]` and `[writes.*]` are the driver's: which attribute holds which fields at which byte, so that
one call reads many; Siphon's own clients ignore them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.core.config import Between, Where
from soulsgraph_envs.core.data_files import load_data
from soulsgraph_envs.drivers.memory.address_map import DISPLACEMENT_SIZE, decode_text, is_pattern, pack, unpack
from soulsgraph_envs.drivers.memory.address_map import TYPE_SIZES as FIELD_SIZES
from soulsgraph_envs.drivers.realtime.link import FIELDS

#: An array is at most so long.
MOST_BYTES = 1 << 22
_UNSIGNED_64 = Between(0, 2**64 - 1)
#: Siphon's types and their sizes in bytes; an array says its own.
TYPE_SIZES: Mapping[str, int] = {"int": 4, "float": 4, "bool": 1, "array": 0}
#: How the start of a chain is found; the last is understood by this project's server alone.
METHODS = ("aobscan", "dll", "module")


@dataclass(frozen=True)
class Attribute:
    """One attribute of a process, found by a byte pattern and a chain of pointers.

    "aobscan": the displacement begins at the pattern's first wildcard and counts from 7 bytes after
    the match; the pointer there starts the chain. "dll": the pointer that code injected at the pattern
    captured, of the target that is locked on. "module": the chain starts at the executable's base.
    """

    offsets: Annotated[tuple[int, ...], _UNSIGNED_64]
    type: str
    pattern: str = ""
    #: Bytes, of type "array".
    length: int = 0
    method: str = "aobscan"
    #: Bits of a "bool" that count.
    mask: int = 0xFF

    @property
    def size(self) -> int:
        """Return the bytes that the attribute takes."""
        return TYPE_SIZES[self.type] or self.length


@dataclass(frozen=True)
class Place:
    """The place of a field in an attribute, its type as in address maps, and its unit's factor."""

    type: str
    at: Annotated[int, Between(0, MOST_BYTES)] = 0
    scale: float = 1.0
    bit: Annotated[int, Between(-1, 7)] = -1
    #: Bytes of a text, of type "utf16".
    length: Annotated[int, Between(0, 256)] = 0

    @property
    def size(self) -> int:
        """Return the bytes that the field takes."""
        return self.length or FIELD_SIZES[self.type]

    def decode(self, data: bytes) -> float | str:
        """Read the field from the bytes of its attribute."""
        own = data[self.at : self.at + self.size]
        if self.type == "utf16":
            return decode_text(own)
        value = unpack(self.type, own)
        return float(int(value) >> self.bit & 1) if self.type == "bit" else value * self.scale

    def encode(self, value: float) -> bytes:
        """Return the bytes of a number as stored in the game; raises `GameError` if it does not fit."""
        return pack(self.type, value / self.scale)


#: Fields of one attribute.
Layout = dict[str, Place]


@dataclass(frozen=True)
class ItemList:
    """Names of the attributes that hold a list's capacity and its entries."""

    capacity: str
    entries: str


@dataclass(frozen=True)
class ItemCount:
    """A field that is the quantity of an item, summed over lists whose length only the game knows."""

    lists: tuple[ItemList, ...]
    entry_size: Annotated[int, Between(1, 4096)]
    item_at: Annotated[int, Between(0, 4096)]
    quantity_at: Annotated[int, Between(0, 4096)]
    #: First and last item id.
    items: Annotated[tuple[int, int], Between(0, 2**32 - 1)]

    def entries(self, data: bytes) -> list[int]:
        """Return which entries of a list hold the item."""
        first, last = self.items
        starts = range(0, len(data) - self.entry_size + 1, self.entry_size)
        items = (struct.unpack_from("<I", data, start + self.item_at)[0] for start in starts)
        return [number for number, item in enumerate(items) if first <= item <= last]


@dataclass(frozen=True)
class ProcessInfo:
    """The game's process and the title of its window."""

    name: str
    window_name: str = ""


@dataclass(frozen=True)
class AttributeFile:
    """A whole attribute file."""

    process_info: ProcessInfo
    attributes: dict[str, Attribute]
    reads: dict[str, Layout] = field(default_factory=dict)
    #: Attributes to write, each with the fields it takes; the first that fits is taken.
    writes: dict[str, Layout] = field(default_factory=dict)
    counts: dict[str, ItemCount] = field(default_factory=dict)
    #: Key bindings of the game, by name.
    bindings: str = ""
    source: str = ""

    @property
    def supplies(self) -> frozenset[str]:
        """Name the fields that can be read."""
        return frozenset(name for layout in self.reads.values() for name in layout) | self.counts.keys()

    @property
    def writable(self) -> frozenset[str]:
        """Name the fields that can be written."""
        return frozenset(name for layout in self.writes.values() for name in layout)


def load_attributes(name_or_path: str | Path) -> AttributeFile:
    """Load an attribute file, shipped or the user's own; one written only for Siphon supplies no fields.

    Raises:
        UnknownNameError: if no shipped file has that name.
        DataError: for a missing, misspelt, mistyped, out-of-range or contradictory value.
    """
    return load_data("attribute file", AttributeFile, name_or_path, _check_file)


def _check_file(loaded: AttributeFile, where: Where) -> None:
    for name, attribute in loaded.attributes.items():
        check_attribute(attribute, where.at("attributes").at(name))
    for key, layouts in (("reads", loaded.reads), ("writes", loaded.writes)):
        for name, layout in layouts.items():
            _check_layout(loaded, name, layout, where.at(key).at(name))
    for name, count in loaded.counts.items():
        for part in (part for each in count.lists for part in (each.capacity, each.entries)):
            if part not in loaded.attributes:
                raise where.at("counts").at(name).error("the name of an attribute", repr(part))


def check_attribute(attribute: Attribute, where: Where) -> None:
    """Refuse an attribute that no server can find.

    Raises:
        DataError: naming its place.
    """
    if attribute.type not in TYPE_SIZES:
        raise where.at("type").error(f"one of {', '.join(TYPE_SIZES)}", repr(attribute.type))
    if attribute.method not in METHODS:
        raise where.at("method").error(f"one of {', '.join(METHODS)}", repr(attribute.method))
    if not attribute.offsets:
        raise where.at("offsets").error("at least one offset", "none")
    if not 0 <= attribute.length <= MOST_BYTES:
        raise where.at("length").error(f"0 to {MOST_BYTES}", attribute.length)
    if not 0 < attribute.mask <= 0xFF:
        raise where.at("mask").error("bits of one byte", attribute.mask)
    if attribute.method != "module" and not is_pattern(attribute.pattern):
        raise where.at("pattern").error("bytes such as '48 8B 05 ?? ??'", repr(attribute.pattern))
    room = len(attribute.pattern.split()) - DISPLACEMENT_SIZE
    if attribute.method == "aobscan" and not 0 <= displacement_at(attribute.pattern) <= room:
        raise where.at("pattern").error("a wildcard where the displacement's four bytes begin", repr(attribute.pattern))


def displacement_at(pattern: str) -> int:
    """Return the index of a pattern's first wildcard, where Siphon reads the displacement; -1 for none."""
    words = pattern.split()
    return words.index("??") if "??" in words else -1


def _check_layout(loaded: AttributeFile, name: str, layout: Layout, where: Where) -> None:
    if name not in loaded.attributes:
        raise where.error(f"one of {', '.join(loaded.attributes)}", "no such attribute")
    size = loaded.attributes[name].size
    for key, place in layout.items():
        at = where.at(key)
        if key not in FIELDS:
            raise at.error("the name of a field of soulsgraph_envs.drivers.realtime.link", repr(key))
        if place.type not in FIELD_SIZES or (place.type == "utf16") != (FIELDS[key].kind == "text"):
            raise at.at("type").error(f"one of {', '.join(FIELD_SIZES)}, utf16 for a text alone", repr(place.type))
        if place.at + place.size > size:
            raise at.error(f"a place within the attribute's {size} bytes", f"byte {place.at + place.size}")
