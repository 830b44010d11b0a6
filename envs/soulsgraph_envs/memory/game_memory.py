"""Read and write a game's fields by name, through an address map resolved in one process."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from soulsgraph_envs.live.fields import FIELDS, Reading
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.memory.address_map import AddressMap, Chain
from soulsgraph_envs.memory.bases import ResolvedBase
from soulsgraph_envs.memory.characters import Characters
from soulsgraph_envs.memory.inventory import ItemCounter
from soulsgraph_envs.memory.layout import Leaf, Node, Step, Values, leaf_of
from soulsgraph_envs.memory.reader import BadAddressError, Reader
from soulsgraph_envs.memory.snapshot import Snapshot
from soulsgraph_envs.memory.values import pack


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
