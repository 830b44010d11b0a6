"""Make Siphon's attribute file of an address map: every field by its name, and blocks that hold many.

Run as a program it prints one: `python -m soulsgraph_envs.drivers.siphon.generate dark-souls-3-1.15.2`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from soulsgraph_envs.core.data_files import shipped_names
from soulsgraph_envs.drivers.memory.address_map import AddressMap, Base, Entry, Inventory, load_address_map
from soulsgraph_envs.drivers.realtime.link import FIELDS
from soulsgraph_envs.drivers.siphon.attributes import (
    Attribute,
    AttributeFile,
    ItemCount,
    ItemList,
    Layout,
    Place,
    ProcessInfo,
    displacement_at,
    load_attributes,
)

#: Siphon counts every displacement from here.
_LENGTH = 7
#: Fields that lie closer than this share a block: bytes cost nothing, calls do.
_WIDEST_GAP = 0x200
_NUMBERS: Mapping[str, str] = {"i32": "int", "u32": "int", "f32": "float"}
_HEXADECIMAL = ("offsets", "items", "mask")


class _Chain(NamedTuple):
    """The start of a chain, by a method of Siphon, and its offsets."""

    method: str
    pattern: str
    offsets: tuple[int, ...]

    def attribute(self, kind: str, length: int = 0, mask: int = 0xFF) -> Attribute:
        return Attribute(self.offsets, kind, self.pattern, length, self.method, mask)


class _Found(NamedTuple):
    """A field and its place."""

    name: str
    chain: _Chain
    entry: Entry

    @property
    def start(self) -> int:
        return self.chain.offsets[-1]

    @property
    def end(self) -> int:
        return self.start + self.entry.size

    def place(self, first: _Found) -> Place:
        entry = self.entry
        return Place(entry.type, self.start - first.start, entry.scale, entry.bit, entry.bytes)


def make_attributes(address_map: AddressMap) -> AttributeFile:
    """Make the attribute file of an address map; fields that no method reaches are left out."""
    found = [each for name in address_map.fields if (each := _find(address_map, name)) is not None]
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
    counts: dict[str, ItemCount] = {}
    for name, inventory in address_map.inventories.items():
        count = _count(attributes, address_map, name, inventory)
        if count.lists:
            counts[name] = count
    info = ProcessInfo(address_map.process, address_map.window)
    return AttributeFile(info, attributes, reads, writes, counts, address_map.bindings, address_map.source)


def _find(address_map: AddressMap, name: str) -> _Found | None:
    entry = address_map.fields[name]
    chain = _chain(address_map, entry.base, entry.offsets)
    return None if chain is None else _Found(name, chain, entry)


def _chain(address_map: AddressMap, base_name: str, offsets: tuple[int, ...]) -> _Chain | None:
    """Return a chain by Siphon's own methods where they reach it, else from the module's base."""
    base_name, offsets = address_map.absolute(base_name, offsets)
    base = address_map.bases[base_name]
    if base.hook:
        return _Chain("dll", base.pattern, offsets)
    if base.dereference and _follows_siphon(base):
        return _Chain("aobscan", base.pattern, offsets)
    if not base.rva:
        return None
    return _Chain("module", "", (base.rva, *offsets) if base.dereference else (base.rva + offsets[0], *offsets[1:]))


def _follows_siphon(base: Base) -> bool:
    return bool(base.pattern) and (base.displacement_at, base.length) == (displacement_at(base.pattern), _LENGTH)


def _single(found: _Found) -> Attribute:
    """Return a field as an attribute of its own, with a type that any Siphon client understands."""
    entry, chain = found.entry, found.chain
    if entry.type in _NUMBERS:
        return chain.attribute(_NUMBERS[entry.type])
    if entry.type == "bit":
        return chain.attribute("bool", mask=1 << entry.bit)
    if entry.type == "u8" and FIELDS[found.name].unit.startswith("flag"):
        return chain.attribute("bool")
    return chain.attribute("array", entry.size)


def _groups(found: Sequence[_Found]) -> Iterator[list[_Found]]:
    """Return fields behind the same pointer that lie near each other, by address."""
    order = {each.chain._replace(offsets=each.chain.offsets[:-1]): None for each in found}
    for start in order:
        same = [each for each in found if each.chain._replace(offsets=each.chain.offsets[:-1]) == start]
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
    attributes[name] = first.chain.attribute("array", max(each.end for each in part) - first.start)
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
            attributes |= {names.capacity: capacity.attribute("int"), names.entries: entries.attribute("array")}
            lists.append(names)
    return ItemCount(tuple(lists), inventory.entry_size, inventory.item_at, inventory.quantity_at, inventory.items)


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
    specs = item.__dataclass_fields__.items()
    changed = {key: getattr(item, key) for key, spec in specs if getattr(item, key) != spec.default}
    return [f"{key} = {_value(key, value)}" for key, value in changed.items()]


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
