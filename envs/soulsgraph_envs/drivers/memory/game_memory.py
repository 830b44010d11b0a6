"""Attach to a running game: bases found by pattern or distance, the map's fields read and written by name."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.memory.address_map import AddressMap, Base, Chain, compile_pattern, file_version, pack
from soulsgraph_envs.drivers.memory.characters import Characters, ItemCounter
from soulsgraph_envs.drivers.memory.layout import Leaf, Node, Snapshot, Step, Values, leaf_of
from soulsgraph_envs.drivers.memory.reader import BadAddressError, Module, Reader
from soulsgraph_envs.drivers.realtime.link import FIELDS, GameSettings, LinkError, Reading, RefusedError


class ResolvedBase(NamedTuple):
    """The address of a base and how it was found: by "pattern" or "rva", with a note on anything unusual."""

    address: int
    dereference: bool
    found_by: str
    note: str = ""

    def start(self, reader: Reader) -> int:
        """Return the address that chains start from, 0 while the game has no object there."""
        return reader.read_pointer(self.address) if self.dereference else self.address


def read_version(reader: Reader, module: Module) -> str:
    """Return the file version of a module, such as "1.15.2.0"; empty if it has none that can be read."""
    header = reader.header(module)
    if header is None or not header.resources[1]:
        return ""
    rva, size = header.resources
    try:
        return file_version(reader.read(module.base + rva, size), rva)
    except BadAddressError:
        return ""


def resolve_bases(reader: Reader, module: Module, address_map: AddressMap) -> dict[str, ResolvedBase]:
    """Find every base that needs no injected code.

    Raises:
        RefusedError: naming the bases that were not found, and the game's version if it is another one.
    """
    version = read_version(reader, module)
    other = bool(version and address_map.version) and version != address_map.version
    bases = {name: base for name, base in address_map.bases.items() if not base.hook}
    patterns = {name: compile_pattern(base.pattern) for name, base in bases.items() if base.pattern}
    matches = reader.scan(module, patterns)
    found = {name: _resolve(reader, module, base, matches.get(name, []), other) for name, base in bases.items()}
    lost = [name for name, resolved in found.items() if resolved is None]
    if lost:
        found_version = f" in version {version}" if version else ""
        raise RefusedError(
            f"{address_map.name}: expected {address_map.game} {address_map.version}, found no {', '.join(lost)}"
            f"{found_version}; use that version of the game, or a map of this one."
        )
    return {name: resolved for name, resolved in found.items() if resolved}


def _resolve(reader: Reader, module: Module, base: Base, matches: list[int], other: bool) -> ResolvedBase | None:
    targets = {_target(reader, base, match) for match in matches}
    fixed = module.base + base.rva
    inside = {target for target in targets if module.base <= target < module.base + module.size}
    if len(inside) == 1 or (base.rva and fixed in inside):
        address = fixed if base.rva and fixed in inside else inside.pop()
        note = "" if not base.rva or address == fixed else f"its rva is {address - module.base:#x} here"
        return ResolvedBase(address, base.dereference, "pattern", note)
    if not base.rva or (other and base.pattern):
        return None
    note = "the game's version is another" if other else ""
    if base.pattern:
        note = f"its pattern was found {len(matches)} times"
    return ResolvedBase(fixed, base.dereference, "rva", note)


def _target(reader: Reader, base: Base, match: int) -> int:
    return match + base.length + int(reader.read_value(match + base.displacement_at, "i32"))


def notes(resolved: Mapping[str, ResolvedBase]) -> list[str]:
    """Return the notes on the bases, one sentence each."""
    return [f"{name}: by {base.found_by}, {base.note}" for name, base in resolved.items() if base.note]


class GameMemory:
    """The fields of a running game.

    No pointer is trusted: each reading and each write walks the chains again, or re-reads and compares
    every pointer of the last walk.
    """

    def __init__(
        self,
        reader: Reader,
        address_map: AddressMap,
        bases: Mapping[str, ResolvedBase],
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self._reader, self.address_map, self.bases = reader, address_map, bases
        self._characters = Characters(reader, address_map, self._start, clock_s)
        self._counters = {name: ItemCounter(name, one) for name, one in address_map.inventories.items()}
        self._roots: dict[str, Node] = {}
        self._snapshot: Snapshot | None = None
        self._lay_out()

    def read(self) -> Reading:
        """Return every readable field in one go.

        An unverified field that cannot be read is NaN, or an empty text.

        Raises:
            LinkError: if another cannot be read.
        """
        if self._characters.due():
            self._search()
        values = self._read_roots()
        if values is None:
            self._search()
            values = self._read_roots()
        if values is None:
            raise LinkError("the boss: expected it to stay where it was found, found it moving; is the game loading?")
        for name, counter in self._counters.items():
            values[name] = counter.count(self._reader, values)
        return values

    def address(self, name: str) -> int:
        """Return where a field lies now.

        Raises:
            LinkError: if its chain is broken.
        """
        self._confirm({self.address_map.entry(name).base})
        return self._address(name)

    def look_up(self, name: str) -> tuple[int, float | str]:
        """Read one field by itself; return its address and its value.

        Raises:
            LinkError: if its chain is broken.
        """
        address = self.address(name)
        if name in self._counters:
            return address, self._reader.read_value(address, "u32")
        entry = self.address_map.fields[name]
        leaf = leaf_of(name, entry)
        return address, leaf.convert(struct.unpack("<" + leaf.format, self._reader.read(address, entry.size))[0])

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields by name, those that touch in one piece.

        Raises:
            GameError: if a value does not fit its field; nothing is written then.
            LinkError: if a field cannot be reached.
        """
        self._confirm({self.address_map.entry(name).base for name in values})
        parts: dict[int, bytes] = {}
        for name, value in values.items():
            address = self._address(name)
            parts[address] = self._packed(name, value, parts.get(address, b""), address)
        for address, data in _joined(parts):
            self._reader.write(address, data)

    @property
    def found_by_name(self) -> frozenset[str]:
        """Return the characters that were found by name; the others are where their chain leads."""
        return self._characters.found

    def _packed(self, name: str, value: float, before: bytes, address: int) -> bytes:
        """Return a value's bytes; for a bit, the byte with its other bits as read now or in `before`."""
        if name in self._counters:
            return pack("u32", value)
        entry = self.address_map.fields[name]
        if entry.type != "bit":
            return pack(entry.type, value / entry.scale)
        byte, mask = (before or self._reader.read(address, 1))[0], 1 << entry.bit
        return bytes([byte | mask if pack("bit", value)[0] else byte & ~mask])

    def _address(self, name: str) -> int:
        return self._item_address(name) if name in self._counters else self._follow(self._chain(name))

    def _item_address(self, name: str) -> int:
        """Return the address of the quantity of an inventory's item; of several entries, that of the first."""
        counter, chain = self._counters[name], self._chain(name)
        root, values = Node(), Values()
        counter.add_leaves(root, self._from_base(chain))
        root.compile()
        for _ in root.read(self._reader, self.bases[chain.base].address, values):
            pass
        return counter.address(self._reader, values)

    def _read_roots(self) -> Values | None:
        """Read all fields; None if a character is no longer where it was found."""
        values = self._snapshot.read() if self._snapshot else None
        if values is None:
            try:
                values = self._walk()
            except BadAddressError:
                if not self._characters.found:
                    raise
                return None
        return values if self._characters.check(values) else None

    def _walk(self) -> Values:
        """Read all fields by walking the chains; a complete walk can be repeated as one snapshot."""
        self._snapshot, values, steps = None, Values(), list[Step]()
        for name, root in self._roots.items():
            steps += root.read(self._reader, self.bases[name].address, values)
        snapshot = Snapshot(self._reader, steps)
        self._snapshot = snapshot if snapshot.names == values.keys() else None
        return values

    def _confirm(self, bases: Iterable[str]) -> None:
        """Check that characters are where they were found, before their memory is touched."""
        if self._characters.due() or not all(self._characters.confirm(base) for base in bases):
            self._search()

    def _start(self, name: str) -> int:
        base = self.bases[name]
        start = base.start(self._reader)
        if not start:
            raise BadAddressError(base.address, f"the object of {name}")
        return start

    def _follow(self, chain: Chain) -> int:
        return self._reader.follow(self._start(chain.base), chain.offsets)

    def _search(self) -> None:
        """Search for the characters found by name, and rebuild the chains if one has moved."""
        if self._characters.search():
            self._lay_out()

    def _chain(self, name: str) -> Chain:
        entry = self.address_map.entry(name)
        return self._characters.placed(entry.base, entry.offsets)

    def _lay_out(self) -> None:
        self._roots, self._snapshot = {}, None
        for name in self.address_map.readable() - self._counters.keys():
            self._add(self._chain(name), leaf_of(name, self.address_map.fields[name]))
        for chain, leaf in self._characters.leaves():
            self._add(chain, leaf)
        for name, counter in self._counters.items():
            chain = self._chain(name)
            counter.add_leaves(self._root(chain.base), self._from_base(chain))
        for root in self._roots.values():
            root.compile()

    def _add(self, chain: Chain, leaf: Leaf) -> None:
        self._root(chain.base).add(self._from_base(chain), leaf)

    def _root(self, base: str) -> Node:
        return self._roots.setdefault(base, Node())

    def _from_base(self, chain: Chain) -> tuple[int, ...]:
        """Return the offsets from the base's own address, which may hold the pointer to its object."""
        return (0, *chain.offsets) if self.bases[chain.base].dereference else chain.offsets


def writable(address_map: AddressMap) -> frozenset[str]:
    """Return the fields of a map that may be written."""
    return frozenset(name for name in address_map.readable() if FIELDS[name].writable)


def _joined(parts: Mapping[int, bytes]) -> list[tuple[int, bytes]]:
    """Join bytes that touch."""
    pieces: list[tuple[int, bytes]] = []
    for address, data in sorted(parts.items()):
        if pieces and pieces[-1][0] + len(pieces[-1][1]) == address:
            address, before = pieces.pop()
            data = before + data
        pieces.append((address, data))
    return pieces


#: Opens a process by its name, or by its id if that is not 0.
OpenReader = Callable[[str, int], Reader]


@dataclass(frozen=True)
class AttachedGame:
    """A game that can be read: its process and module, its file version ("" if it has none), its fields."""

    reader: Reader
    module: Module
    version: str
    memory: GameMemory


def attach_game(settings: GameSettings, address_map: AddressMap, open_reader: OpenReader | None = None) -> AttachedGame:
    """Find the game of the settings and resolve its map; an empty process name is the map's.

    Raises:
        LinkError: if it does not run, may not be read, or is another version.
    """
    process = settings.process or address_map.process
    reader = (open_reader or open_process)(process, settings.pid)
    try:
        module = reader.module(process)
        bases = resolve_bases(reader, module, address_map)
        return AttachedGame(reader, module, read_version(reader, module), GameMemory(reader, address_map, bases))
    except BaseException:
        reader.close()
        raise


def open_process(name: str, pid: int = 0) -> Reader:
    """Open a process with this system's reader, by its id if that is not 0.

    Raises:
        LinkError: if it does not run or may not be read.
        GameError: if this system has no reader, or its package is missing.
    """
    if sys.platform == "linux":
        from soulsgraph_envs.drivers.memory.linux_reader import LinuxReader

        return LinuxReader(pid) if pid else LinuxReader.named(name)
    if sys.platform == "win32":
        from soulsgraph_envs.drivers.memory.pymeow_reader import PymeowReader

        return PymeowReader(pid or name)
    raise GameError(
        f"a game's memory: expected Linux or Windows, found {sys.platform}; run there, or use the driver siphon."
    )
