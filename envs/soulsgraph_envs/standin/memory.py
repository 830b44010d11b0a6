"""The stand-in's memory: any address map, laid out as module, globals and blocks behind pointer chains."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.drivers.memory.address_map import AddressMap, Entry
from soulsgraph_envs.drivers.realtime.link import FIELDS
from soulsgraph_envs.standin.blocks import (
    Block,
    Cell,
    Constant,
    Place,
    Value,
    lay_out_crowd,
    lay_out_stock,
    place_blocks,
    reachable,
)
from soulsgraph_envs.standin.image import Image
from soulsgraph_envs.standin.options import Surroundings
from soulsgraph_envs.standin.process import PAGE, release, reserve, view

_MODULE_AT, _MODULE_STEP = 0x140000000, 0x10000000
# Between the program's own heap (below 0x57…) and what the system maps by chance (0x7e… and above).
_HEAP_AT, _HEAP_STEP = 0x600000000000, 0x1000000
#: What a loading screen clears: everything of the world, nothing of the save file.
_OF_THE_WORLD = ("player_", "boss_", "camera_")


class _Heap(NamedTuple):
    address: int
    size: int


class OwnMemory:
    """Everything that a reader of an address map finds in this process.

    `write` stores values by field name; `foreign_writes` returns what others wrote to the fields that
    may be written. `load` starts again with other blocks, as a loading screen does; `move` moves the
    module too.
    """

    def __init__(self, address_map: AddressMap, folder: Path, surroundings: Surroundings) -> None:
        self._map, self._surroundings = address_map, surroundings
        self._image = Image(address_map.bases, address_map.version, folder / address_map.process)
        self._heaps: list[_Heap] = []
        self._loads = self._moves = 0
        self._image.load(_MODULE_AT)
        self.load()

    @property
    def base(self) -> int:
        """Return the module's base address."""
        return self._image.base

    def load(self) -> None:
        """Lay out all blocks at addresses never used before; the previous blocks stay until the next `load`."""
        self._keep_heaps(1)
        roots = {name: Block() for name in self._map.bases}
        places = [(name, self._lay_out(entry, roots)) for name, entry in self._map.fields.items()]
        copies = [(one, self._lay_out(one.entry, roots)) for one in self._surroundings.copies.get(self._map.name, ())]
        places += [(one.field, place) for one, place in copies if one.field]
        constants = [Constant(place, one.value) for one, place in copies if not one.field]
        constants += lay_out_crowd(self._map, roots, self._surroundings.boss_name)
        stocks, items = lay_out_stock(self._map, roots)
        self._place(roots)
        self._cells = [(name, _cell(place)) for name, place in [*places, *stocks]]
        self._writable = [(name, cell) for name, cell in self._cells if FIELDS[name].writable]
        for place, value in [*constants, *items]:
            _cell(place).write(value)

    def move(self) -> None:
        """Move module and blocks to other addresses; nothing is left at the old ones."""
        self._moves += 1
        self._image.load(_MODULE_AT + self._moves * _MODULE_STEP)
        self.load()
        self._keep_heaps(1)

    def unlink(self) -> None:
        """Clear the pointers to the world, as in a loading screen."""
        names = {self._map.chain(name).base for name in self._map.readable() if name.startswith(_OF_THE_WORLD)}
        for name in names:
            self._image.point(name, 0)

    def write(self, values: Mapping[str, Value]) -> None:
        """Store the values of the map's fields."""
        for name, cell in self._cells:
            cell.write(values[name])

    def foreign_writes(self) -> dict[str, Value]:
        """Return what other programs wrote since the last call, by field."""
        found = ((name, cell.foreign()) for name, cell in self._writable)
        return {name: value for name, value in found if value is not None}

    def close(self) -> None:
        """Free all of the memory."""
        self._keep_heaps(0)
        self._image.unload()

    def _lay_out(self, entry: Entry, roots: Mapping[str, Block]) -> Place:
        chain = self._map.absolute(entry.base, entry.offsets)
        return Place(roots[chain.base].walk(chain.offsets[:-1]), chain.offsets[-1], entry).kept()

    def _place(self, roots: Mapping[str, Block]) -> None:
        """Assign addresses to the blocks, on a new heap or in the module, and write all pointers."""
        for name, block in roots.items():
            if not self._map.bases[name].dereference:
                block.address = self._image.address(name)
        on_heap = [block for block in reachable(roots.values()) if not block.address]
        start = _HEAP_AT + self._loads * _HEAP_STEP
        size = -(-(place_blocks(on_heap, start) - start) // PAGE) * PAGE
        reserve(start, size)
        self._loads += 1
        self._heaps.append(_Heap(start, size))
        for block in reachable(roots.values()):
            for offset, target in block.pointers.items():
                view(block.address + offset, 8)[:] = struct.pack("<Q", target.address)
        for name, block in roots.items():
            if self._map.bases[name].dereference:
                self._image.point(name, block.address)

    def _keep_heaps(self, most: int) -> None:
        while len(self._heaps) > most:
            release(*self._heaps.pop(0))


def _cell(place: Place) -> Cell:
    return Cell(place.entry, view(place.block.address + place.offset, place.entry.size))
