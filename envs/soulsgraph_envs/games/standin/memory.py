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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import AddressMap, Base, Entry, compile_pattern
from soulsgraph_envs.games.link import FIELDS
from soulsgraph_envs.games.standin.launch import Surroundings

PAGE = mmap.PAGESIZE
#: Rights to memory, as in sys/mman.h.
READ, WRITE, EXECUTE = 1, 2, 4

# Not named by the mmap module: values of linux/mman.h and linux/prctl.h.
_MAP_FIXED, _MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x10, 0x4000, 0x100000
_MAP_FAILED = ctypes.c_void_p(-1).value
_SET_NAME, _SET_PTRACER, _ANYONE = 15, 0x59616D61, ctypes.c_ulong(-1)


def reserve(address: int, size: int) -> None:
    """Map `size` zero bytes at `address`, readable and writable; pages never touched cost nothing.

    Raises:
        GameError: if something lies there already, or the system has no such memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    _map(address, size, READ | WRITE, flags, -1)


def map_file(address: int, size: int, file: Path) -> None:
    """Map the first `size` bytes of a file over memory reserved at `address`, read-only."""
    with file.open("rb") as opened:
        _map(address, size, READ, mmap.MAP_PRIVATE | _MAP_FIXED, opened.fileno())


def protect(address: int, size: int, rights: int) -> None:
    """Change the access rights of whole pages of memory."""
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights):
        raise _refused("the rights of memory to be changed")


def release(address: int, size: int) -> None:
    """Free memory; reading it fails from now on."""
    if _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise _refused("memory to be freed")


def view(address: int, size: int) -> memoryview:
    """View this process's memory as writable bytes; it must stay mapped as long as the view is used."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def name_process(name: str) -> None:
    """Set this process's name (15 bytes of it), by which others find it, and let them read its memory."""
    _libc().prctl(_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)
    # Where only ancestors may read a process, it can allow everyone of its user; elsewhere this does nothing.
    _libc().prctl(_SET_PTRACER, _ANYONE, 0, 0, 0)


def _map(address: int, size: int, rights: int, flags: int, descriptor: int) -> None:
    system_map = _libc().mmap
    system_map.restype = ctypes.c_void_p
    found = system_map(ctypes.c_void_p(address), ctypes.c_size_t(size), rights, flags, descriptor, ctypes.c_long(0))
    if found == _MAP_FAILED:
        raise _refused(f"{size} bytes of memory at {address:#x}")


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise GameError(f"the stand-in game: expected Linux, found {sys.platform}: start it on a Linux machine.")
    return ctypes.CDLL(None, use_errno=True)


def _refused(wanted: str) -> GameError:
    return GameError(
        f"the stand-in game: expected {wanted}, found {os.strerror(ctypes.get_errno())}: "
        "end other programs or try again."
    )


_HEADER_AT = 0x80
_MACHINE_64, _OPTIONAL_64 = 0x8664, 0x20B
_OPTIONAL_SIZE, _RESOURCE_DIRECTORY = 240, 2
_CODE, _DATA = 0x60000020, 0xC0000040
_VERSION_TYPE, _ENGLISH = 16, 1033


class Sections(NamedTuple):
    """The offsets of an image's sections from its base; each ends where the next begins."""

    code: int
    data: int
    resources: int
    end: int


def write_header(sections: Sections) -> bytes:
    """Return the header page of an image."""
    optional = struct.pack("<HBB5I", _OPTIONAL_64, 14, 0, sections.data - sections.code, 0, 0, sections.code, PAGE)
    optional += struct.pack("<Q2I6HI", 0x140000000, PAGE, 0x200, 6, 0, 0, 0, 6, 0, 0)
    optional += struct.pack("<3I2H4Q2I", sections.end, PAGE, 0, 2, 0, 1 << 20, PAGE, 1 << 20, PAGE, 0, 16)
    directories = [(0, 0)] * 16
    directories[_RESOURCE_DIRECTORY] = (sections.resources, sections.end - sections.resources)
    optional += b"".join(struct.pack("<2I", *directory) for directory in directories)
    assert len(optional) == _OPTIONAL_SIZE
    table = _section(b".text", sections.code, sections.data, _CODE, 0)
    table += _section(b".data", sections.data, sections.resources, _DATA, 0)
    table += _section(b".rsrc", sections.resources, sections.end, 0x40000040, PAGE)
    coff = struct.pack("<2H3I2H", _MACHINE_64, 3, 0, 0, 0, _OPTIONAL_SIZE, 0x22)
    start = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", _HEADER_AT)
    return (start.ljust(_HEADER_AT, b"\0") + b"PE\0\0" + coff + optional + table).ljust(PAGE, b"\0")


def write_resources(version: str, resources: int) -> bytes:
    """Return a resource section that begins at the offset `resources` and holds the file's version, as "1.15.2"."""
    numbers = ([int(part) for part in version.split(".")] + [0, 0, 0, 0])[:4]
    high, low = numbers[0] << 16 | numbers[1], numbers[2] << 16 | numbers[3]
    fixed = struct.pack("<13I", 0xFEEF04BD, 0x10000, high, low, high, low, 0x3F, 0, 0x40004, 1, 0, 0, 0)
    key = "VS_VERSION_INFO\0".encode("utf-16-le")
    value_at = -(-(6 + len(key)) // 4) * 4
    info = struct.pack("<3H", value_at + len(fixed), len(fixed), 0) + key
    info = info.ljust(value_at, b"\0") + fixed
    levels = b"".join(
        struct.pack("<2I4H", 0, 0, 0, 0, 0, 1) + struct.pack("<2I", name, target)
        for name, target in ((_VERSION_TYPE, 24 | 1 << 31), (1, 48 | 1 << 31), (_ENGLISH, 72))
    )
    return levels + struct.pack("<4I", resources + len(levels) + 16, len(info), 0, 0) + info


def _section(name: bytes, start: int, end: int, rights: int, raw_at: int) -> bytes:
    raw_size = PAGE if raw_at else 0
    return name.ljust(8, b"\0") + struct.pack("<6I2HI", end - start, start, raw_size, raw_at, 0, 0, 0, 0, rights)


_CODE_SIZE = 2 << 20
#: Room between two places that code uses.
_SPACING = 0x1000
#: Globals whose place no source gives lie from here on, below every place that one gives.
_UNPLACED_AT = 0x1000000


class Image:
    """A module mapped at `base`, with the globals of an address map and a file that its header comes from."""

    def __init__(self, bases: Mapping[str, Base], version: str, file: Path) -> None:
        #: Each global's offset in the module; of a hooked one, that of a slot before its code.
        self._places = {
            name: base.rva or (_code_at(number) - 8 if base.hook else _UNPLACED_AT + number * _SPACING)
            for number, (name, base) in enumerate(bases.items())
        }
        code_end = PAGE + _CODE_SIZE
        data_end = -(-(max(self._places.values()) + PAGE) // PAGE) * PAGE
        self.sections = Sections(PAGE, code_end, data_end, data_end + PAGE)
        self.base = 0
        self._file = file
        self._resources = write_resources(version, data_end)
        self._code = _code(bases, self._places)
        file.write_bytes(write_header(self.sections) + self._resources.ljust(PAGE, b"\0"))

    def load(self, base: int) -> None:
        """Map the image at a base, its globals zero; an image that lies elsewhere is unmapped first."""
        self.unload()
        reserve(base, self.sections.end)
        map_file(base, PAGE, self._file)
        view(base + self.sections.code, len(self._code))[:] = self._code
        protect(base + self.sections.code, _CODE_SIZE, READ | EXECUTE)
        view(base + self.sections.resources, len(self._resources))[:] = self._resources
        self.base = base

    def address(self, name: str) -> int:
        """Return the address of a global."""
        return self.base + self._places[name]

    def point(self, name: str, target: int) -> None:
        """Let a global point at `target`; a global in the code stands for what a hook there would capture."""
        code, in_code = self.base + self.sections.code, self._places[name] < self.sections.data
        if in_code:
            protect(code, _CODE_SIZE, READ | WRITE)
        view(self.address(name), 8)[:] = struct.pack("<Q", target)
        if in_code:
            protect(code, _CODE_SIZE, READ | EXECUTE)

    def unload(self) -> None:
        """Unmap the image, if it is mapped."""
        if self.base:
            release(self.base, self.sections.end)
            self.base = 0


def _code_at(number: int) -> int:
    return PAGE + (number + 1) * _SPACING


def _code(bases: Mapping[str, Base], places: Mapping[str, int]) -> bytes:
    """Return code bytes that hold every pattern exactly once, with a displacement that leads to its global."""
    code = bytearray(random.Random(_CODE_SIZE).randbytes(_CODE_SIZE))
    for number, (name, base) in enumerate(bases.items()):
        if base.pattern:
            at = _code_at(number) - PAGE
            for index, word in enumerate(base.pattern.split()):
                if word != "??":
                    code[at + index] = int(word, 16)
            if not base.hook:
                struct.pack_into("<i", code, at + base.displacement_at, places[name] - (PAGE + at + base.length))
            found = [match.start() + PAGE for match in compile_pattern(base.pattern).finditer(code)]
            if found != [_code_at(number)]:
                raise GameError(
                    f"the pattern of {name!r}: expected it at {_code_at(number):#x} alone, found it at "
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

    def __init__(self, address_map: AddressMap, surroundings: Surroundings) -> None:
        self._map = address_map
        self.roots = {name: Block() for name in address_map.bases}
        self.fields = [(name, self._place(entry)) for name, entry in address_map.fields.items()]
        self.constants: list[tuple[Place, Value]] = []
        for copy in surroundings.copies.get(address_map.name, ()):
            if copy.field:
                self.fields.append((copy.field, self._place(copy.entry)))
            else:
                self.constants.append((self._place(copy.entry), copy.value))
        self._load_crowd(surroundings.boss_name)
        self._fill_inventories()

    def _place(self, entry: Entry) -> Place:
        chain = self._map.absolute(entry.base, entry.offsets)
        return self.roots[chain.base].walk(chain.offsets[:-1]).value(chain.offsets[-1], entry)

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


_MODULE_AT, _MODULE_STEP = 0x140000000, 0x10000000
# Between the program's own heap (below 0x57…) and what the system maps at random (0x7e… and above).
_HEAP_AT, _HEAP_STEP = 0x600000000000, 0x1000000
#: What a loading screen clears: everything of the world, nothing of the save file.
_OF_THE_WORLD = ("player_", "boss_", "camera_")


class OwnMemory:
    """Everything that a reader of an address map finds in this process.

    `write` stores values by field name; `foreign_writes` returns what others wrote to the fields that
    may be written. `load` starts again with other blocks, as a loading screen does; `move` moves the
    module too.
    """

    def __init__(self, address_map: AddressMap, folder: Path, surroundings: Surroundings) -> None:
        self._map, self._surroundings = address_map, surroundings
        self._image = Image(address_map.bases, address_map.version, folder / address_map.process)
        #: Address and size of each.
        self._heaps: list[tuple[int, int]] = []
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
        layout = _Layout(self._map, self._surroundings)
        self._map_blocks(layout.roots)
        self._cells = [(name, place()) for name, place in layout.fields]
        self._writable = [(name, cell) for name, cell in self._cells if FIELDS[name].writable]
        for place, value in layout.constants:
            place().write(value)

    def move(self) -> None:
        """Move module and blocks to other addresses; nothing is left at the old ones."""
        self._moves += 1
        self._image.load(_MODULE_AT + self._moves * _MODULE_STEP)
        self.load()
        self._keep_heaps(1)

    def unlink(self) -> None:
        """Clear the pointers to the world, as in a loading screen."""
        for name in self._map.readable():
            if name.startswith(_OF_THE_WORLD):
                self._image.point(self._map.chain(name).base, 0)

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

    def _map_blocks(self, roots: Mapping[str, Block]) -> None:
        """Assign addresses to the blocks, on a new heap or in the module, and write all pointers."""
        for name, block in roots.items():
            if not self._map.bases[name].dereference:
                block.address = self._image.address(name)
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
                self._image.point(name, block.address)

    def _keep_heaps(self, most: int) -> None:
        while len(self._heaps) > most:
            release(*self._heaps.pop(0))
