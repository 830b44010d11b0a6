"""Find an item in lists whose length only the game knows, and follow it through attributes of its own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from math import nan

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.memory.values import pack
from soulsgraph_envs.siphon.attributes import Attribute, ItemCount


class ItemMovedError(LinkError):
    """The item no longer lies where it was found."""


class ItemFinder:
    """Follow one item: first its lists are read whole, then only the entries that hold it.

    `entries` and `quantities` are the attributes of those entries, by name; empty until it is found.
    """

    def __init__(self, field: str, count: ItemCount) -> None:
        self.count = count
        self._field = field
        self.entries: dict[str, Attribute] = {}
        self.quantities: dict[str, Attribute] = {}

    def locate(self, lists: Sequence[tuple[Attribute, bytes]]) -> dict[str, Attribute]:
        """Look for the item in whole lists, each with its attribute; return the attributes to follow it by."""
        self.entries, self.quantities = {}, {}
        size, quantity_at = self.count.entry_size, self.count.quantity_at
        for start, data in lists:
            for entry in self.count.entries(data):
                number = len(self.entries) + 1
                at = entry * size
                self.entries[f"{self._field}_entry_{number}"] = _at(start, at, "array", size)
                self.quantities[f"{self._field}_quantity_{number}"] = _at(start, at + quantity_at, "int")
        return self.entries | self.quantities

    def total(self, contents: Sequence[bytes]) -> float:
        """Return the quantity in all entries, from their bytes; NaN if the item was found nowhere.

        Raises:
            ItemMovedError: if one of them holds something else now.
        """
        if not all(self.count.entries(data) for data in contents):
            raise ItemMovedError(f"{self._field}: expected them where they were found, found another item there.")
        if not contents:
            return nan
        return float(sum(struct.unpack_from("<I", data, self.count.quantity_at)[0] for data in contents))

    def write(self, value: float) -> tuple[str, bytes]:
        """Return the attribute that holds the quantity, and its bytes.

        Raises:
            GameError: if no entry holds the item, or more than one does.
        """
        if len(self.quantities) != 1:
            raise GameError(
                f"{self._field}: expected one entry of the inventory to write, found {len(self.quantities)}; "
                "leave one of them in the inventory."
            )
        return next(iter(self.quantities)), pack("u32", value)


def _at(start: Attribute, offset: int, kind: str, length: int = 0) -> Attribute:
    return replace(start, offsets=(*start.offsets[:-1], start.offsets[-1] + offset), type=kind, length=length)
