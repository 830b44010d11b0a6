"""Read a whole layout in one call, at the addresses of the last walk, valid only if its pointers are unchanged.

Every pointer that the walk followed is read again along with the values. If all are as they were, the
values are those that a walk would read, taken at nearly one moment; if one has changed, none is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence, Set

from soulsgraph_envs.memory.layout import Leaf, Step, Values
from soulsgraph_envs.memory.reader import BadAddressError, Reader


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
