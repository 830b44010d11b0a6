"""Siphon's attribute file: the attributes that a server finds in the game, and how the driver reads fields from them.

`[process_info]` and `[attributes.*]` are Siphon's own format, which its clients send to a server.
`[reads.*]` and `[writes.*]` are the driver's: which attribute holds which fields at which byte, so that
one call reads many; Siphon's own clients ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from soulsgraph_envs.core.config import Between, Where, check_fields
from soulsgraph_envs.core.data_files import load_data
from soulsgraph_envs.drivers.memory.address_map import DISPLACEMENT_SIZE, Item, Stored, demand, is_pattern
from soulsgraph_envs.drivers.realtime.link import FIELDS

#: An array is at most so long.
MOST_BYTES = 1 << 22
_UNSIGNED_64 = Between(0, 2**64 - 1)
SiphonType = Literal["int", "float", "bool", "array"]
#: Bytes of Siphon's types; an array says its own.
_SIZES: Mapping[str, int] = {"int": 4, "float": 4, "bool": 1, "array": 0}


@dataclass(frozen=True)
class Attribute:
    """One attribute of a process, found by a byte pattern and a chain of pointers.

    "aobscan": the displacement begins at the pattern's first wildcard and counts from 7 bytes after
    the match; the pointer there starts the chain. "dll": the pointer that code injected at the pattern
    captured, of the target that is locked on. "module": the chain starts at the executable's base, which
    this project's server alone understands.
    """

    offsets: Annotated[tuple[int, ...], _UNSIGNED_64]
    type: SiphonType
    pattern: str = ""
    #: Bytes, of type "array".
    length: Annotated[int, Between(0, MOST_BYTES)] = 0
    method: Literal["aobscan", "dll", "module"] = "aobscan"
    #: Bits of a "bool" that count.
    mask: Annotated[int, Between(1, 0xFF)] = 0xFF

    @property
    def size(self) -> int:
        """Return the bytes that the attribute takes."""
        return _SIZES[self.type] or self.length


@dataclass(frozen=True, kw_only=True)
class Place(Stored):
    """A field in an attribute: the byte it begins at, and how it is stored."""

    at: Annotated[int, Between(0, MOST_BYTES)] = 0
    room: Annotated[int, Between(0, 256)] = field(default=0, metadata={"key": "length"})


#: Fields of one attribute.
Layout = dict[str, Place]


@dataclass(frozen=True)
class ItemList:
    """Names of the attributes that hold a list's capacity and its entries."""

    capacity: str
    entries: str


@dataclass(frozen=True, kw_only=True)
class ItemCount(Item):
    """A field that is the quantity of an item, summed over lists whose length only the game knows."""

    lists: tuple[ItemList, ...]


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
            demand(part in loaded.attributes, where.at("counts").at(name), "the name of an attribute", repr(part))


def check_attribute(attribute: Attribute, where: Where) -> None:
    """Refuse an attribute that no server can find.

    Raises:
        DataError: naming its place.
    """
    check_fields(attribute, where)
    if attribute.method != "module":
        place, found = where.at("pattern"), repr(attribute.pattern)
        demand(is_pattern(attribute.pattern), place, "bytes such as '48 8B 05 ?? ??'", found)
        room = len(attribute.pattern.split()) - DISPLACEMENT_SIZE
        whole = attribute.method == "dll" or 0 <= displacement_at(attribute.pattern) <= room
        demand(whole, place, "a wildcard where the displacement's four bytes begin", found)


def displacement_at(pattern: str) -> int:
    """Return the index of a pattern's first wildcard, where Siphon reads the displacement; -1 for none."""
    words = pattern.split()
    return words.index("??") if "??" in words else -1


def _check_layout(loaded: AttributeFile, name: str, layout: Layout, where: Where) -> None:
    demand(name in loaded.attributes, where, f"one of {', '.join(loaded.attributes)}", "no such attribute")
    size = loaded.attributes[name].size
    for key, place in layout.items():
        at, end = where.at(key), place.at + place.size
        demand(key in FIELDS, at, "the name of a field of soulsgraph_envs.drivers.realtime.link", repr(key))
        fits = (place.type == "utf16") == (FIELDS[key].kind == "text")
        demand(fits, at.at("type"), "utf16 for a text alone", repr(place.type))
        demand(end <= size, at, f"a place within the attribute's {size} bytes", f"byte {end}")
