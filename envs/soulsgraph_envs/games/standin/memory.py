"""The stand-in's memory: any address map, laid out as module, globals and blocks behind pointer chains.

The module is an executable's file as a scanner finds it mapped, with code that points at its globals.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import AddressMap, Base, Entry, compile_pattern
from soulsgraph_envs.games.link import FIELDS

PAGE = mmap.PAGESIZE
# Not named by the mmap module: values of linux/mman.h and linux/prctl.h.
_MAP_FIXED, _MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x10, 0x4000, 0x100000
_MAP_FAILED = ctypes.c_void_p(-1).value
_SET_NAME, _SET_PTRACER, _ANYONE = 15, 0x59616D61, ctypes.c_ulong(-1)


def reserve(address: int, size: int) -> None:
    """Map `size` zero bytes at `address`, readable and writable; pages never touched cost nothing.

    Raises:
        GameError: if something lies there already, or the system has no such memory.
    """
    _map(address, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE, -1)


def release(address: int, size: int) -> None:
    """Free memory; reading it fails from now on."""
    _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


def view(address: int, size: int) -> memoryview:
    """View this process's memory as writable bytes; it must stay mapped as long as the view is used."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def name_process(name: str) -> None:
    """Set this process's name (15 bytes of it), by which others find it, and let them read its memory."""
    _libc().prctl(_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)
    # Where only ancestors may read a process, it can allow everyone of its user; elsewhere this does nothing.
    _libc().prctl(_SET_PTRACER, _ANYONE, 0, 0, 0)


def _map(address: int, size: int, flags: int, descriptor: int) -> None:
    system_map, rights = _libc().mmap, mmap.PROT_READ | mmap.PROT_WRITE
    system_map.restype = ctypes.c_void_p
    found = system_map(ctypes.c_void_p(address), ctypes.c_size_t(size), rights, flags, descriptor, ctypes.c_long(0))
    if found == _MAP_FAILED:
        raise GameError(
            f"the stand-in game: expected {size} bytes of memory at {address:#x}, found "
            f"{os.strerror(ctypes.get_errno())}: end other programs or try again."
        )


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise GameError(f"the stand-in game: expected Linux, found {sys.platform}: start it on a Linux machine.")
    return ctypes.CDLL(None, use_errno=True)


_HEADER_AT, _OPTIONAL_SIZE, _RESOURCE_DIRECTORY = 0x80, 240, 2
_CODE, _DATA, _READ_ONLY = 0x60000020, 0xC0000040, 0x40000040


class Sections(NamedTuple):
    """The offsets of an image's sections from its base; each ends where the next begins."""

    code: int
    data: int
    resources: int
    end: int


def write_header(sections: Sections) -> bytes:
    """Return the header page of an image: of a PE file what readers of a loaded one look at."""
    page, optional = bytearray(PAGE), _HEADER_AT + 24
    struct.pack_into("<2s58xI", page, 0, b"MZ", _HEADER_AT)
    struct.pack_into("<4s2H12x2H", page, _HEADER_AT, b"PE\0\0", 0x8664, 3, _OPTIONAL_SIZE, 0x22)
    struct.pack_into("<H54xI", page, optional, 0x20B, sections.end)
    size = sections.end - sections.resources
    struct.pack_into("<2I", page, optional + 112 + 8 * _RESOURCE_DIRECTORY, sections.resources, size)
    for number, (name, rights) in enumerate(((b".text", _CODE), (b".data", _DATA), (b".rsrc", _READ_ONLY))):
        start, end = sections[number : number + 2]
        at = optional + _OPTIONAL_SIZE + 40 * number
        struct.pack_into("<8s2I20xI", page, at, name, end - start, start, rights)
    return bytes(page)


def write_resources(version: str) -> bytes:
    """Return what of a resource section holds the file's version, as "1.15.2"."""
    major, minor, build, revision = ([int(part) for part in version.split(".")] + [0, 0, 0, 0])[:4]
    return struct.pack("<2I4H", 0xFEEF04BD, 0x10000, minor, major, revision, build)


_CODE_SIZE = 2 << 20
#: Room between two places that code uses.
_SPACING = 0x1000
#: Globals whose place no source gives lie from here on, below every place that one gives.
_UNPLACED_AT = 0x1000000
_MODULE_AT = 0x140000000


class Image:
    """A module mapped at `base`, with the globals of an address map, zero, and a header that comes from a file."""

    base = _MODULE_AT

    def __init__(self, address_map: AddressMap) -> None:
        #: Each global's offset in the module.
        self._places = {
            name: base.rva or _UNPLACED_AT + number * _SPACING
            for number, (name, base) in enumerate(address_map.bases.items())
        }
        data_end = -(-(max(self._places.values()) + PAGE) // PAGE) * PAGE
        self.sections = Sections(PAGE, PAGE + _CODE_SIZE, data_end, data_end + PAGE)
        code, resources = _code(address_map.bases, self._places), write_resources(address_map.version)
        reserve(self.base, self.sections.end)
        # A file that is gone keeps its name in the list of mappings, and however this process ends nothing is left.
        with tempfile.TemporaryDirectory(prefix="soulsgraph-standin-") as folder:
            file = Path(folder, address_map.process)
            file.write_bytes(write_header(self.sections))
            with file.open("rb") as opened:
                _map(self.base, PAGE, mmap.MAP_PRIVATE | _MAP_FIXED, opened.fileno())
        view(self.base + self.sections.code, len(code))[:] = code
        view(self.base + self.sections.resources, len(resources))[:] = resources

    def address(self, name: str) -> int:
        """Return the address of a global."""
        return self.base + self._places[name]

    def point(self, name: str, target: int) -> None:
        """Let a global point at `target`."""
        view(self.address(name), 8)[:] = struct.pack("<Q", target)

    def close(self) -> None:
        """Unmap the image."""
        release(self.base, self.sections.end)


def _code(bases: Mapping[str, Base], places: Mapping[str, int]) -> bytes:
    """Return code bytes that hold every pattern exactly once, with a displacement that leads to its global."""
    code = bytearray(random.Random(_CODE_SIZE).randbytes(_CODE_SIZE))
    for number, (name, base) in enumerate(bases.items(), 1):
        if base.pattern:
            at = number * _SPACING
            for index, word in enumerate(base.pattern.split()):
                if word != "??":
                    code[at + index] = int(word, 16)
            struct.pack_into("<i", code, at + base.displacement_at, places[name] - (PAGE + at + base.length))
            found = [match.start() for match in compile_pattern(base.pattern).finditer(code)]
            if found != [at]:
                raise GameError(
                    f"the pattern of {name!r}: expected it at {at:#x} of the code alone, found it at "
                    f"{[hex(place) for place in found]}: its fixed bytes do not fit; correct the address map."
                )
    return bytes(code)


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

    def value(self, offset: int, entry: Entry) -> Place:
        """Reserve room for a value of an entry's type; return its place, to be called once the block has its address.

        Raises:
            GameError: if a pointer lies there.
        """
        if [at for at in self.pointers if at < offset + entry.size and offset < at + 8]:
            raise GameError(f"offset {offset:#x}: expected a value, found a pointer: correct the address map.")
        self.size = max(self.size, offset + entry.size)
        return lambda: Cell(entry, view(self.address + offset, entry.size))

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


#: Returns a value's bytes in memory.
Place = Callable[[], "Cell"]


def _reachable(roots: Iterable[Block]) -> Iterator[Block]:
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
        self._entry, self._memory = entry, memory
        self._mask = 1 << entry.bit if entry.type == "bit" else 0
        self._stored = self._own(bytes(memory))

    def write(self, value: Value) -> None:
        """Store a value, unless it is stored already."""
        data = self._entry.encode(value, self._memory)
        if self._own(data) != self._stored:
            self._stored = self._own(data)
            self._memory[:] = data

    def foreign(self) -> Value | None:
        """Return the value that another program wrote since the last `write` or `foreign`."""
        before, self._stored = self._stored, self._own(bytes(self._memory))
        return None if self._stored == before else self._entry.decode(self._stored)

    def _own(self, data: bytes) -> bytes:
        """Return what of the bytes is the field's: of a bit, that bit alone."""
        return bytes([data[0] & self._mask]) if self._mask else data


#: Another character, loaded before the boss, and an item beside the one that counts.
_BYSTANDER, _OTHER_ITEM, _OTHER_QUANTITY = "c1100", 0x400001F4, 7
_CAPACITY, _OTHER_PLACE, _ITEM_PLACE = 8, 1, 4
_U32 = Entry("", (), type="u32")


class _Layout:
    """The blocks of an address map behind its bases, the places of its fields, and values that are written once."""

    def __init__(self, address_map: AddressMap, boss_name: str) -> None:
        self._map = address_map
        self.roots = {name: Block() for name in address_map.bases}
        self.constants: list[tuple[Place, Value]] = []
        self.fields: list[tuple[str, Place]] = []
        for name, entry in address_map.fields.items():
            chain = address_map.absolute(entry.base, entry.offsets)
            block = self.roots[chain.base].walk(chain.offsets[:-1])
            self.fields.append((name, block.value(chain.offsets[-1], entry)))
        self._load_crowd(boss_name)
        self._fill_inventories()

    def _fix(self, block: Block, offset: int, value: int) -> None:
        self.constants.append((block.value(offset, _U32), value))

    def _load_crowd(self, boss_name: str) -> None:
        """Load the characters that a walk looks through: a bystander in one block, the boss in the next."""
        for character in self._map.characters.values():
            walk = character.walk
            if walk.name:
                boss, world = self.roots[character.base].walk(character.offsets), self.roots[walk.base]
                self._fix(world, walk.count_at, 2)
                *way, last = walk.name_offsets
                for index, (person, name) in enumerate(((Block(), _BYSTANDER), (boss, boss_name))):
                    block = world.below(walk.blocks_at + 8 * index)
                    # The first entry stays empty: a place somebody left.
                    block.below(walk.entries_at).point(walk.entry_size, person)
                    self._fix(block, walk.capacity_at, 2)
                    named = person.walk(way).value(last, Entry("", (), type="utf16", room=walk.name_bytes))
                    self.constants.append((named, name))

    def _fill_inventories(self) -> None:
        """Put the counted item into the first list of each, something else before it, gaps between."""
        for name, inventory in self._map.inventories.items():
            chain = self._map.chain(name)
            owner = self.roots[chain.base].walk(chain.offsets)
            for number, one in enumerate(inventory.lists):
                entries = owner.below(one.entries_at)
                entries.size = max(entries.size, inventory.entry_size * _CAPACITY)
                self._fix(owner, one.capacity_at, _CAPACITY)
                other, counted = _OTHER_PLACE * inventory.entry_size, _ITEM_PLACE * inventory.entry_size
                self._fix(entries, other + inventory.item_at, _OTHER_ITEM)
                self._fix(entries, other + inventory.quantity_at, _OTHER_QUANTITY)
                if number == 0:
                    self._fix(entries, counted + inventory.item_at, inventory.items[0])
                    self.fields.append((name, entries.value(counted + inventory.quantity_at, _U32)))


# Between the program's own heap (below 0x57…) and what the system maps at random (0x7e… and above).
_HEAP_AT, _HEAP_STEP = 0x600000000000, 0x1000000
#: What a loading screen clears: everything of the world, nothing of the save file.
_OF_THE_WORLD = ("player_", "boss_", "camera_")


class OwnMemory:
    """Everything that a reader of an address map finds in this process.

    `write` stores values by field name; `foreign_writes` returns what others wrote to the fields that
    may be written. `load` starts again with other blocks, as a loading screen does.
    """

    def __init__(self, address_map: AddressMap, boss_name: str) -> None:
        self._map, self._boss_name = address_map, boss_name
        self.image = Image(address_map)
        #: Address and size of each.
        self._heaps: list[tuple[int, int]] = []
        self._loads = 0
        self.load()

    def load(self) -> None:
        """Lay out all blocks at addresses never used before; the previous blocks stay until the next `load`."""
        self._keep_heaps(1)
        layout = _Layout(self._map, self._boss_name)
        self._map_blocks(layout.roots)
        self._cells = [(name, place()) for name, place in layout.fields]
        for place, value in layout.constants:
            place().write(value)

    def unlink(self) -> None:
        """Clear the pointers to the world, as in a loading screen."""
        for name in self._map.readable():
            if name.startswith(_OF_THE_WORLD):
                self.image.point(self._map.chain(name).base, 0)

    def write(self, values: Mapping[str, Value]) -> None:
        """Store the values of the map's fields."""
        for name, cell in self._cells:
            cell.write(values[name])

    def foreign_writes(self) -> dict[str, Value]:
        """Return what other programs wrote since the last call, by field."""
        found = ((name, cell.foreign()) for name, cell in self._cells if FIELDS[name].writable)
        return {name: value for name, value in found if value is not None}

    def close(self) -> None:
        """Free all of the memory."""
        self._keep_heaps(0)
        self.image.close()

    def _map_blocks(self, roots: Mapping[str, Block]) -> None:
        """Assign addresses to the blocks, on a new heap or in the module, and write all pointers."""
        for name, block in roots.items():
            if not self._map.bases[name].dereference:
                block.address = self.image.address(name)
        start = end = _HEAP_AT + self._loads * _HEAP_STEP
        for block in _reachable(roots.values()):
            if not block.address:
                block.address = end
                end += -(-(block.size + _MARGIN) // _ALIGNMENT) * _ALIGNMENT
        self._heaps.append((start, -(-(end - start) // PAGE) * PAGE))
        reserve(*self._heaps[-1])
        self._loads += 1
        for block in _reachable(roots.values()):
            for offset, target in block.pointers.items():
                view(block.address + offset, 8)[:] = struct.pack("<Q", target.address)
        for name, block in roots.items():
            if self._map.bases[name].dereference:
                self.image.point(name, block.address)

    def _keep_heaps(self, most: int) -> None:
        while len(self._heaps) > most:
            release(*self._heaps.pop(0))
