"""Memory blocks behind pointer chains, laid out on a heap; loaded characters and an inventory among them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.memory.address_map import FORMATS, AddressMap, Entry, Walk, decode_text

#: Room behind a block's last known place; a reader may take a few neighbours along.
_MARGIN = 0x100
_ALIGNMENT = 0x10
Value = float | str


class Block:
    """A piece of memory: values at some offsets, pointers to other blocks at others."""

    def __init__(self) -> None:
        self.pointers: dict[int, Block] = {}
        self.size = 0
        self.address = 0

    def value(self, offset: int, size: int) -> None:
        """Reserve room for a value of `size` bytes.

        Raises:
            GameError: if a pointer lies there.
        """
        taken = [at for at in self.pointers if at < offset + size and offset < at + 8]
        if taken:
            raise GameError(f"offset {offset:#x}: expected a value, found a pointer: correct the address map.")
        self.size = max(self.size, offset + size)

    def below(self, offset: int) -> Block:
        """Return the block behind the pointer at an offset, a new one if there is none."""
        return self.point(offset, self.pointers.get(offset) or Block())

    def point(self, offset: int, block: Block) -> Block:
        """Store a pointer to a block, and return the block."""
        self.pointers[offset] = block
        self.size = max(self.size, offset + 8)
        return block

    def walk(self, offsets: Sequence[int]) -> Block:
        """Return the block at the end of a chain of pointers; missing blocks are made."""
        block = self
        for offset in offsets:
            block = block.below(offset)
        return block


def place_blocks(blocks: Iterable[Block], address: int) -> int:
    """Assign every block an address from `address` on, one after another; return where they end."""
    for block in blocks:
        block.address = address
        address += -(-(block.size + _MARGIN) // _ALIGNMENT) * _ALIGNMENT
    return address


def reachable(roots: Iterable[Block]) -> Iterator[Block]:
    """Return every block that pointers lead to from `roots`, each once, roots included."""
    waiting, seen = list(roots), set[int]()
    while waiting:
        block = waiting.pop()
        if id(block) not in seen:
            seen.add(id(block))
            yield block
            waiting.extend(block.pointers.values())


class Cell:
    """A field and the bytes that hold it.

    `write` stores a value in the map's type and unit; `foreign` returns the present value if another
    program has overwritten the stored one.
    """

    def __init__(self, entry: Entry, memory: memoryview) -> None:
        self._memory = memory
        self._encode, self._decode = _text(entry.room) if entry.type == "utf16" else _number(entry)
        self._mask = 1 << entry.bit if entry.type == "bit" else 0
        self._stored = self._read()

    def write(self, value: Value) -> None:
        """Store a value, unless it is stored already."""
        data = self._encode(value)
        if data != self._stored:
            self._stored = data
            self._memory[:] = self._merged(data) if self._mask else data

    def foreign(self) -> Value | None:
        """Return the value that another program wrote since the last `write` or `foreign`."""
        found = self._read()
        if found == self._stored:
            return None
        self._stored = found
        return self._decode(found)

    def _read(self) -> bytes:
        data = bytes(self._memory)
        return bytes([data[0] & self._mask]) if self._mask else data

    def _merged(self, data: bytes) -> bytes:
        return bytes([self._memory[0] & ~self._mask | data[0]])


def _number(entry: Entry) -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]]:
    layout, scale, shift = struct.Struct("<" + FORMATS[entry.type]), entry.scale, max(entry.bit, 0)
    whole = entry.type != "f32"

    def encode(value: Value) -> bytes:
        number = float(value) / scale
        return layout.pack(round(number) << shift if whole else number)

    def decode(data: bytes) -> Value:
        (number,) = layout.unpack(data)
        return float(number >> shift if whole else number) * scale

    return encode, decode


def _text(size: int) -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]]:
    def encode(value: Value) -> bytes:
        return str(value).encode("utf-16-le")[:size].ljust(size, b"\0")

    return encode, decode_text


#: Another character, loaded before the boss, and an item beside the one that counts.
_BYSTANDER, _OTHER_ITEM, _OTHER_QUANTITY = "c1100", 0x400001F4, 7
_CAPACITY, _OTHER_PLACE, _ITEM_PLACE = 8, 1, 4
_U32 = Entry("", (), type="u32")


class Place(NamedTuple):
    """The place and type of a value."""

    block: Block
    offset: int
    entry: Entry

    def kept(self) -> Place:
        """Reserve room for it in its block."""
        self.block.value(self.offset, self.entry.size)
        return self


class Constant(NamedTuple):
    """A value that is written once."""

    place: Place
    value: Value


def lay_out_crowd(address_map: AddressMap, roots: Mapping[str, Block], boss_name: str) -> list[Constant]:
    """Load the characters that a walk looks through: a bystander in one block, the boss in the next."""
    constants = []
    for character in address_map.characters.values():
        walk = character.walk
        if walk.name:
            boss, world = roots[character.base].walk(character.offsets), roots[walk.base]
            constants.append(_constant(world, walk.count_at, 2))
            for index, (person, name) in enumerate(((Block(), _BYSTANDER), (boss, boss_name))):
                constants += _lay_out_person(walk, world.below(walk.blocks_at + 8 * index), person, name)
    return constants


def lay_out_stock(
    address_map: AddressMap, roots: Mapping[str, Block]
) -> tuple[list[tuple[str, Place]], list[Constant]]:
    """Fill inventories: the counted item in the first list, something else before it, gaps between."""
    places: list[tuple[str, Place]] = []
    constants: list[Constant] = []
    for name, inventory in address_map.inventories.items():
        chain = address_map.chain(name)
        owner = roots[chain.base].walk(chain.offsets)
        for number, one in enumerate(inventory.lists):
            entries = owner.below(one.entries_at)
            entries.value(0, inventory.entry_size * _CAPACITY)
            constants.append(_constant(owner, one.capacity_at, _CAPACITY))
            other, counted = _OTHER_PLACE * inventory.entry_size, _ITEM_PLACE * inventory.entry_size
            constants.append(_constant(entries, other + inventory.item_at, _OTHER_ITEM))
            constants.append(_constant(entries, other + inventory.quantity_at, _OTHER_QUANTITY))
            if number == 0:
                constants.append(_constant(entries, counted + inventory.item_at, inventory.items[0]))
                places.append((name, Place(entries, counted + inventory.quantity_at, _U32)))
    return places, constants


def _lay_out_person(walk: Walk, block: Block, person: Block, name: str) -> list[Constant]:
    entries = block.below(walk.entries_at)
    # The first entry stays empty: a place somebody left.
    entries.point(walk.entry_size, person)
    *way, last = walk.name_offsets
    named = Place(person.walk(way), last, Entry("", (), type="utf16", room=walk.name_bytes)).kept()
    return [_constant(block, walk.capacity_at, 2), Constant(named, name)]


def _constant(block: Block, offset: int, value: int) -> Constant:
    return Constant(Place(block, offset, _U32).kept(), value)
