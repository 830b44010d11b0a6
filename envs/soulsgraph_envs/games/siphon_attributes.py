"""Siphon's attribute file: the attributes that a server finds in the game, and how the driver reads fields from them.

`[process_info]` and `[attributes.*]` are Siphon's own format, which its clients send to a server.
`[reads.*]` and `[writes.*]` are the driver's: which attribute holds which fields at which byte, so that
one call reads many; Siphon's own clients ignore them.

Run as a program it prints the file made of an address map:
`python -m soulsgraph_envs.games.siphon_attributes dark-souls-3-1.15.2`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from soulsgraph_envs.core.config import Between, NonEmpty, load_data, require, shipped_names
from soulsgraph_envs.games.address_map import (
    DISPLACEMENT_SIZE,
    AddressMap,
    Base,
    Entry,
    FieldEncoding,
    Inventory,
    Item,
    is_pattern,
    load_address_map,
)
from soulsgraph_envs.games.link import FIELDS

#: An array is at most so long.
MOST_BYTES = 1 << 22
_UNSIGNED_64 = Between(0, 2**64 - 1)
SiphonType = Literal["int", "float", "bool", "array"]
Value = int | float | bool | bytes
#: Siphon's types as Python's, and how the first two are stored.
PYTHON_TYPES: Mapping[str, Callable[..., Value]] = {"int": int, "float": float, "bool": bool, "array": bytes}
FORMATS = {"int": "<i", "float": "<f"}


@dataclass(frozen=True)
class Attribute:
    """One attribute of a process, found by a byte pattern and a chain of pointers.

    "aobscan": the displacement begins at the pattern's first wildcard and counts from 7 bytes after
    the match; the pointer there starts the chain. "dll": the pointer that code injected at the pattern
    captured, of the target that is locked on. "module": the chain starts at the executable's base, which
    this project's server alone understands.
    """

    offsets: NonEmpty[Annotated[int, _UNSIGNED_64]]
    type: SiphonType
    pattern: str = ""
    #: Bytes, of type "array".
    length: Annotated[int, Between(0, MOST_BYTES)] = 0
    method: Literal["aobscan", "dll", "module"] = "aobscan"
    #: Bits of a "bool" that count.
    mask: Annotated[int, Between(1, 0xFF)] = 0xFF

    def __post_init__(self) -> None:
        if self.method != "module":
            require(is_pattern(self.pattern), "pattern", "be bytes such as '48 8B 05 ?? ??'")
            room = len(self.pattern.split()) - DISPLACEMENT_SIZE
            whole = self.method == "dll" or 0 <= displacement_at(self.pattern) <= room
            require(whole, "pattern", "have a wildcard where the displacement's four bytes begin")

    @property
    def size(self) -> int:
        """Return the bytes that the attribute takes."""
        return self.length if self.type == "array" else 1 if self.type == "bool" else 4

    def decode(self, data: bytes) -> Value:
        """Return the value of the attribute's bytes."""
        if self.type == "bool":
            return bool(data[0] & self.mask)
        return data if self.type == "array" else PYTHON_TYPES[self.type](struct.unpack(FORMATS[self.type], data)[0])


@dataclass(frozen=True, kw_only=True)
class Place(FieldEncoding):
    """A field in an attribute: the byte it begins at, and how it is stored."""

    at: Annotated[int, Between(0, MOST_BYTES)] = 0


#: Fields of one attribute.
Layout = dict[str, Place]


@dataclass(frozen=True)
class ItemListNames:
    """Names of the attributes that hold a list's capacity and its entries."""

    capacity: str
    entries: str


@dataclass(frozen=True, kw_only=True)
class ItemCount(Item):
    """A field that is the quantity of an item, summed over lists whose length only the game knows."""

    lists: NonEmpty[ItemListNames]


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

    def __post_init__(self) -> None:
        for key, layouts in (("reads", self.reads), ("writes", self.writes)):
            for name, layout in layouts.items():
                require(name in self.attributes, f"{key}.{name}", "be the name of an attribute")
                for field_name, place in layout.items():
                    at, size = f"{key}.{name}.{field_name}", self.attributes[name].size
                    require(field_name in FIELDS, at, "be a field of soulsgraph_envs.games.link")
                    fits = (place.type == "utf16") == (FIELDS[field_name].kind == "text")
                    require(fits, f"{at}.type", "be utf16 for a text alone")
                    require(place.at + place.size <= size, at, f"lie within the attribute's {size} bytes")
        for name, count in self.counts.items():
            for part in (part for each in count.lists for part in (each.capacity, each.entries)):
                require(part in self.attributes, f"counts.{name}", f"name attributes, found {part!r}")

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
    return load_data("attribute file", AttributeFile, name_or_path)


def displacement_at(pattern: str) -> int:
    """Return the index of a pattern's first wildcard, where Siphon reads the displacement; -1 for none."""
    words = pattern.split()
    return words.index("??") if "??" in words else -1


#: Siphon counts every displacement from here.
_LENGTH = 7
#: Fields that lie closer than this share a block: bytes cost nothing, calls do.
_WIDEST_GAP = 0x200
_NUMBERS: Mapping[str, SiphonType] = {"i32": "int", "u32": "int", "f32": "float"}
_HEXADECIMAL = ("offsets", "items", "mask")


class _UntypedAttribute(NamedTuple):
    """A field and its place, as an attribute whose type is still open."""

    name: str
    chain: Attribute
    entry: Entry

    @property
    def start(self) -> int:
        return self.chain.offsets[-1]

    @property
    def end(self) -> int:
        return self.start + self.entry.size

    def place(self, first: _UntypedAttribute) -> Place:
        entry = self.entry
        return Place(type=entry.type, scale=entry.scale, bit=entry.bit, room=entry.room, at=self.start - first.start)


def make_attributes(address_map: AddressMap) -> AttributeFile:
    """Make the attribute file of an address map; fields that no method reaches are left out."""
    chains = {name: _chain(address_map, entry.base, entry.offsets) for name, entry in address_map.fields.items()}
    found = [_UntypedAttribute(name, chain, address_map.fields[name]) for name, chain in chains.items() if chain]
    attributes = {each.name: _single(each) for each in found}
    reads: dict[str, Layout] = {}
    writes: dict[str, Layout] = {}
    for group in _groups(found):
        if len(group) == 1:
            reads[group[0].name] = {group[0].name: group[0].place(group[0])}
        else:
            _add_array(attributes, reads, group, f"{group[0].name}_block")
        for run in _runs(group):
            _add_array(attributes, writes, run, _joined([each.name for each in run]))
    writes |= {each.name: {each.name: each.place(each)} for each in found if FIELDS[each.name].writable}
    counts = {name: _count(attributes, address_map, name, one) for name, one in address_map.inventories.items()}
    counts = {name: count for name, count in counts.items() if count.lists}
    info = ProcessInfo(address_map.process, address_map.window)
    return AttributeFile(info, attributes, reads, writes, counts, address_map.bindings, address_map.source)


def _chain(address_map: AddressMap, base_name: str, offsets: tuple[int, ...]) -> Attribute | None:
    """Return a chain by Siphon's own methods where they reach it, else from the module's base; None for none."""
    base_name, offsets = address_map.absolute(base_name, offsets)
    base = address_map.bases[base_name]
    if base.hook:
        return Attribute(offsets, "array", base.pattern, method="dll")
    if base.dereference and _follows_siphon(base):
        return Attribute(offsets, "array", base.pattern)
    if not base.rva:
        return None
    offsets = (base.rva, *offsets) if base.dereference else (base.rva + offsets[0], *offsets[1:])
    return Attribute(offsets, "array", method="module")


def _follows_siphon(base: Base) -> bool:
    return bool(base.pattern) and (base.displacement_at, base.length) == (displacement_at(base.pattern), _LENGTH)


def _single(found: _UntypedAttribute) -> Attribute:
    """Return a field as an attribute of its own, with a type that any Siphon client understands."""
    entry, chain = found.entry, found.chain
    if entry.type in _NUMBERS:
        return replace(chain, type=_NUMBERS[entry.type])
    if entry.type == "bit":
        return replace(chain, type="bool", mask=1 << entry.bit)
    if entry.type == "u8" and FIELDS[found.name].unit.startswith("flag"):
        return replace(chain, type="bool")
    return replace(chain, length=entry.size)


def _groups(found: Sequence[_UntypedAttribute]) -> Iterator[list[_UntypedAttribute]]:
    """Return fields behind the same pointer that lie near each other, by address."""
    groups: dict[Attribute, list[_UntypedAttribute]] = {}
    for each in found:
        groups.setdefault(replace(each.chain, offsets=each.chain.offsets[:-1]), []).append(each)
    for same in groups.values():
        yield from _split(same, _WIDEST_GAP)


def _runs(group: Sequence[_UntypedAttribute]) -> Iterator[list[_UntypedAttribute]]:
    """Return runs of adjacent writable fields, which are written in one piece."""
    writable = [each for each in group if FIELDS[each.name].writable and each.entry.type != "bit"]
    return (run for run in _split(writable, 0) if len(run) > 1)


def _split(found: Sequence[_UntypedAttribute], widest_gap: int) -> Iterator[list[_UntypedAttribute]]:
    part: list[_UntypedAttribute] = []
    for each in sorted(found, key=lambda each: each.start):
        if part and each.start - part[-1].end > widest_gap:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _add_array(
    attributes: dict[str, Attribute], layouts: dict[str, Layout], part: Sequence[_UntypedAttribute], name: str
) -> None:
    first = part[0]
    attributes[name] = replace(first.chain, length=max(each.end for each in part) - first.start)
    layouts[name] = {each.name: each.place(first) for each in part}


def _joined(names: Sequence[str]) -> str:
    """Return a joint name of several fields: player_x and player_y give player_x_y."""
    words = [name.split("_") for name in names]
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    return "_".join([*words[0][:shared], *("_".join(each[shared:]) for each in words)])


def _count(attributes: dict[str, Attribute], address_map: AddressMap, name: str, inventory: Inventory) -> ItemCount:
    lists = []
    for number, each in enumerate(inventory.lists, start=1):
        names = ItemListNames(f"{name}_capacity_{number}", f"{name}_entries_{number}")
        capacity = _chain(address_map, inventory.base, (*inventory.offsets, each.capacity_at))
        entries = _chain(address_map, inventory.base, (*inventory.offsets, each.entries_at, 0))
        if capacity is not None and entries is not None:
            attributes |= {names.capacity: replace(capacity, type="int"), names.entries: entries}
            lists.append(names)
    own = {spec.name: getattr(inventory, spec.name) for spec in fields(Item)}
    return ItemCount(lists=tuple(lists), **own)


def attributes_for(name_or_path: str) -> AttributeFile:
    """Load an attribute file, or make that of a shipped address map that has none.

    Raises:
        UnknownNameError: if neither has that name.
        DataError: as `load_attributes`.
    """
    names = shipped_names("attribute file")
    if name_or_path not in names and name_or_path in shipped_names("address map"):
        return make_attributes(load_address_map(name_or_path))
    return load_attributes(name_or_path)


def dump(file: AttributeFile) -> str:
    """Write an attribute file as TOML, defaults left out, offsets in hexadecimal as in Siphon's own files."""
    lines = [f'source = "{file.source}"', f'bindings = "{file.bindings}"']
    tables: dict[str, Any] = {"process_info": file.process_info}
    kinds: dict[str, Mapping[str, Any]] = {
        "attributes": file.attributes,
        "counts": file.counts,
        "reads": file.reads,
        "writes": file.writes,
    }
    tables |= {f"{kind}.{name}": table for kind, own in kinds.items() for name, table in own.items()}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(item: Any) -> list[str]:
    """Return the values that differ from the defaults, one line each."""
    if isinstance(item, Mapping):
        return [f"{key} = {_value(key, value)}" for key, value in item.items()]
    changed = [(spec, value) for spec in fields(item) if (value := getattr(item, spec.name)) != spec.default]
    return [f"{spec.name} = {_value(spec.name, value)}" for spec, value in changed]


def _value(key: str, value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(key, each) for each in value) + "]"
    if isinstance(value, int | float):
        return f"0x{value:X}" if key in _HEXADECIMAL else str(value)
    return "{ " + ", ".join(_lines(value)) + " }"


if __name__ == "__main__":
    print(dump(make_attributes(load_address_map(sys.argv[1]))), end="")
