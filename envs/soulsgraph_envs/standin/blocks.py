"""Memory blocks behind pointer chains: a tree of offsets, laid out one after another on a heap.

A chain is walked as every reader does: from a block, each offset but the last is a pointer to the
next block, the last is where the value lies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.memory.address_map import Entry
from soulsgraph_envs.memory.values import FORMATS, decode_text

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
        self._encode, self._decode = _text(entry.bytes) if entry.type == "utf16" else _number(entry)
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
