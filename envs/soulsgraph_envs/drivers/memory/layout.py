"""Compile chains into few reads, what they share read once; read a whole layout in one call, its pointers checked."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence, Set
from math import nan
from typing import Any, NamedTuple

from soulsgraph_envs.drivers.memory.address_map import FORMATS, Entry, decode_text
from soulsgraph_envs.drivers.memory.reader import BadAddressError, Reader

#: Most bytes between two neighbours that are read in one piece.
_GAP = 256
_POINTER = "Q"

Values = dict[str, Any]


class Leaf(NamedTuple):
    """A value at the end of a chain: its name, format, conversion, and its value if the chain breaks.

    A chain may break if all of its leaves have a `missing` value; any other broken chain ends the reading.
    """

    name: str
    format: str
    convert: Callable[[Any], float | str]
    missing: float | str | None = None


class Step(NamedTuple):
    """One piece that a walk has read: its address, its format, the values and their meanings."""

    address: int
    format: struct.Struct
    parts: tuple[Any, ...]
    targets: list[Node | Leaf]


class Node:
    """One object: pointers and leaves by their offset, compiled to pieces before the first reading."""

    def __init__(self) -> None:
        self._pointers: dict[int, Node] = {}
        self._leaves: list[tuple[int, Leaf]] = []
        self._pieces: list[tuple[int, struct.Struct, list[Node | Leaf]]] = []
        #: What the leaves below become if the object is not there; None if it must be.
        self._missing: Values | None = None

    def add(self, offsets: tuple[int, ...], leaf: Leaf) -> None:
        """Add a leaf at the end of a chain."""
        node = self
        for offset in offsets[:-1]:
            node = node._pointers.setdefault(offset, Node())
        node._leaves.append((offsets[-1], leaf))

    def compile(self) -> None:
        """Gather what lies in this object, and in those below it, into pieces."""
        for below in self._pointers.values():
            below.compile()
        leaves = list(self._all_leaves())
        missing = {leaf.name: leaf.missing for leaf in leaves}
        self._missing = None if None in missing.values() else missing
        parts: list[tuple[int, str, Node | Leaf]] = [(at, _POINTER, below) for at, below in self._pointers.items()]
        parts += [(at, leaf.format, leaf) for at, leaf in self._leaves]
        self._pieces = list(_pieces(sorted(parts, key=lambda part: part[:2])))

    def read(self, reader: Reader, address: int, values: Values) -> Iterator[Step]:
        """Read the object at an address, and all below it, into `values`; yield each step as it is taken.

        Raises:
            LinkError: as the reader does; `BadAddressError` for a null pointer.
        """
        for offset, piece, targets in self._pieces:
            parts = piece.unpack(reader.read(address + offset, piece.size))
            yield Step(address + offset, piece, parts, targets)
            for part, target in zip(parts, targets, strict=True):
                if isinstance(target, Leaf):
                    values[target.name] = target.convert(part)
                else:
                    yield from target._read_behind(reader, part, address, values)

    def _read_behind(self, reader: Reader, pointer: int, address: int, values: Values) -> Iterator[Step]:
        try:
            if not pointer:
                raise BadAddressError(address, "a pointer in this object")
            yield from self.read(reader, pointer, values)
        except BadAddressError:
            if self._missing is None:
                raise
            values.update(self._missing)

    def _all_leaves(self) -> Iterator[Leaf]:
        yield from (leaf for _, leaf in self._leaves)
        for below in self._pointers.values():
            yield from below._all_leaves()


def _pieces(
    parts: list[tuple[int, str, Node | Leaf]],
) -> Iterator[tuple[int, struct.Struct, list[Node | Leaf]]]:
    """Gather parts, sorted by offset, into pieces; one that overlaps its neighbour begins a piece of its own."""
    start = end = 0
    text, targets = "<", list[Node | Leaf]()
    for offset, code, target in parts:
        if targets and not end <= offset <= end + _GAP:
            yield start, struct.Struct(text), targets
            targets = []
        if not targets:
            start, end, text, targets = offset, offset, "<", []
        text += f"{offset - end}x{code}"
        end = offset + struct.calcsize("<" + code)
        targets.append(target)
    if targets:
        yield start, struct.Struct(text), targets


def leaf_of(name: str, entry: Entry) -> Leaf:
    """Return the leaf of a field: numbers become floats, times the scale; an unverified field may be missing."""
    if entry.type == "utf16":
        return Leaf(name, f"{entry.bytes}s", decode_text, None if entry.verified else "")
    return Leaf(name, FORMATS[entry.type], _converter(entry), None if entry.verified else nan)


def _converter(entry: Entry) -> Callable[[Any], float]:
    if entry.type == "bit":
        return lambda byte: float(byte >> entry.bit & 1)
    return float if entry.scale == 1.0 else entry.scale.__mul__


class Snapshot:
    """The steps of a walk, to be read again in one call."""

    def __init__(self, reader: Reader, steps: Sequence[Step]) -> None:
        """Prepare to repeat the steps of a walk."""
        self._gather = reader.gatherer([(step.address, step.format.size) for step in steps])
        self._format = struct.Struct("<" + "".join(step.format.format.removeprefix("<") for step in steps))
        parts = [(part, target) for step in steps for part, target in zip(step.parts, step.targets, strict=True)]
        self._leaves = [(at, leaf.name, leaf.convert) for at, (_, leaf) in enumerate(parts) if isinstance(leaf, Leaf)]
        self._pointers = [(at, part) for at, (part, target) in enumerate(parts) if not isinstance(target, Leaf)]

    @property
    def names(self) -> Set[str]:
        """Return the names of the values that it reads."""
        return {name for _, name, _ in self._leaves}

    def read(self) -> Values | None:
        """Return all values, or None if a pointer has changed or an address is gone.

        Raises:
            LinkError: if the process has ended.
        """
        try:
            parts = self._format.unpack(self._gather())
        except BadAddressError:
            return None
        if any(parts[at] != pointer for at, pointer in self._pointers):
            return None
        return {name: convert(parts[at]) for at, name, convert in self._leaves}
