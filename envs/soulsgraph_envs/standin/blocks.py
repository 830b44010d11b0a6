"""Memory blocks behind pointer chains: a tree of offsets, laid out one behind the other on a heap.

A chain is walked as every reader does: from a block, each offset but the last is a pointer to the
next block, the last is where the value lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from soulsgraph_envs.errors import GameError

#: Room behind a block's last known place; a reader may take a few neighbours along.
_MARGIN = 0x100
_ALIGNMENT = 0x10


class Block:
    """A piece of memory: values at some offsets, pointers to other blocks at others."""

    def __init__(self) -> None:
        self.pointers: dict[int, Block] = {}
        self.size = 0
        self.address = 0

    def value(self, offset: int, size: int) -> None:
        """Keep room for a value of `size` bytes.

        Raises:
            GameError: if a pointer lies there.
        """
        taken = [at for at in self.pointers if at < offset + size and offset < at + 8]
        if taken:
            raise GameError(f"offset {offset:#x}: expected a value, found a pointer: correct the address map.")
        self.size = max(self.size, offset + size)

    def below(self, offset: int) -> Block:
        """Return the block behind the pointer at an offset, a new one if there is none yet."""
        return self.point(offset, self.pointers.get(offset) or Block())

    def point(self, offset: int, block: Block) -> Block:
        """Lay a pointer to a block, and return the block."""
        self.pointers[offset] = block
        self.size = max(self.size, offset + 8)
        return block

    def walk(self, offsets: Sequence[int]) -> Block:
        """Return the block at the end of a chain of pointers, made where it is missing."""
        block = self
        for offset in offsets:
            block = block.below(offset)
        return block


def place_blocks(blocks: Iterable[Block], address: int) -> int:
    """Return every block an address from `address` on, one behind the other; give where they end."""
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
