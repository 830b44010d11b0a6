"""Make Siphon's attribute file of an address map: every field by its name, and blocks that hold many.

Run as a program it prints one: `python -m soulsgraph_envs.drivers.siphon.generate dark-souls-3-1.15.2`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import takewhile
from typing import Any, NamedTuple

from soulsgraph_envs.core.data_files import shipped_names
from soulsgraph_envs.drivers.memory.address_map import AddressMap, Base, Entry, Inventory, Item, load_address_map
from soulsgraph_envs.drivers.realtime.link import FIELDS
from soulsgraph_envs.drivers.siphon.attributes import (
    Attribute,
    AttributeFile,
    ItemCount,
    ItemList,
    Layout,
    Place,
    ProcessInfo,
    SiphonType,
    displacement_at,
    load_attributes,
)

#: Siphon counts every displacement from here.
_LENGTH = 7
#: Fields that lie closer than this share a block: bytes cost nothing, calls do.
_WIDEST_GAP = 0x200
_NUMBERS: Mapping[str, SiphonType] = {"i32": "int", "u32": "int", "f32": "float"}
_HEXADECIMAL = ("offsets", "items", "mask")


class _Found(NamedTuple):
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

    def place(self, first: _Found) -> Place:
        entry = self.entry
        return Place(type=entry.type, scale=entry.scale, bit=entry.bit, room=entry.room, at=self.start - first.start)


def make_attributes(address_map: AddressMap) -> AttributeFile:
    """Make the attribute file of an address map; fields that no method reaches are left out."""
    chains = {name: _chain(address_map, entry.base, entry.offsets) for name, entry in address_map.fields.items()}
    found = [_Found(name, chain, address_map.fields[name]) for name, chain in chains.items() if chain]
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


def _single(found: _Found) -> Attribute:
    """Return a field as an attribute of its own, with a type that any Siphon client understands."""
    entry, chain = found.entry, found.chain
    if entry.type in _NUMBERS:
        return replace(chain, type=_NUMBERS[entry.type])
    if entry.type == "bit":
        return replace(chain, type="bool", mask=1 << entry.bit)
    if entry.type == "u8" and FIELDS[found.name].unit.startswith("flag"):
        return replace(chain, type="bool")
    return replace(chain, length=entry.size)


def _groups(found: Sequence[_Found]) -> Iterator[list[_Found]]:
    """Return fields behind the same pointer that lie near each other, by address."""
    groups: dict[Attribute, list[_Found]] = {}
    for each in found:
        groups.setdefault(replace(each.chain, offsets=each.chain.offsets[:-1]), []).append(each)
    for same in groups.values():
        yield from _split(same, _WIDEST_GAP)


def _runs(group: Sequence[_Found]) -> Iterator[list[_Found]]:
    """Return runs of adjacent writable fields, which are written in one piece."""
    writable = [each for each in group if FIELDS[each.name].writable and each.entry.type != "bit"]
    return (run for run in _split(writable, 0) if len(run) > 1)


def _split(found: Sequence[_Found], widest_gap: int) -> Iterator[list[_Found]]:
    part: list[_Found] = []
    for each in sorted(found, key=lambda each: each.start):
        if part and each.start - part[-1].end > widest_gap:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _add_array(attributes: dict[str, Attribute], layouts: dict[str, Layout], part: Sequence[_Found], name: str) -> None:
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
        names = ItemList(f"{name}_capacity_{number}", f"{name}_entries_{number}")
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
    tables |= {f"attributes.{name}": attribute for name, attribute in file.attributes.items()}
    tables |= {f"counts.{name}": count for name, count in file.counts.items()}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    for key, layouts in (("reads", file.reads), ("writes", file.writes)):
        for name, layout in layouts.items():
            lines += ["", f"[{key}.{name}]", *(f"{field} = {_value(key, place)}" for field, place in layout.items())]
    return "\n".join(lines) + "\n"


def _lines(item: Any) -> list[str]:
    """Return the values that differ from the defaults, one line each."""
    keys = {spec.name: spec.metadata.get("key", spec.name) for spec in fields(item)}
    changed = [spec.name for spec in fields(item) if getattr(item, spec.name) != spec.default]
    return [f"{keys[name]} = {_value(name, getattr(item, name))}" for name in changed]


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
