"""Count an item of an inventory: its lists have gaps and are searched whole; its place is remembered."""

from __future__ import annotations

from math import nan
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.memory.address_map import Inventory
from soulsgraph_envs.memory.layout import Leaf, Node, Values
from soulsgraph_envs.memory.reader import BadAddressError, Reader

#: A longer list is none.
_MOST_ENTRIES = 1 << 16


class Slot(NamedTuple):
    """An item's place: the list, and the entry in it."""

    list: int
    entry: int


class ItemCounter:
    """Count one item. Known places are read first; the lists are searched again when it has left one."""

    def __init__(self, name: str, inventory: Inventory) -> None:
        self._name, self._inventory = name, inventory
        self._slots: list[Slot] = []

    def add_leaves(self, node: Node, offsets: tuple[int, ...]) -> None:
        """Add leaves for capacity and entries of each list; `offsets` lead to the inventory."""
        missing = None if self._inventory.verified else 0
        for number, one in enumerate(self._inventory.lists):
            capacity, entries = self._keys(number)
            node.add((*offsets, one.capacity_at), Leaf(capacity, "I", int, missing))
            node.add((*offsets, one.entries_at), Leaf(entries, "Q", int, missing))

    def count(self, reader: Reader, values: Values) -> float:
        """Return the sum of the item's quantities, taking its lists from `values`; NaN if there are none.

        Raises:
            BadAddressError: if a list is not there and the inventory is verified.
        """
        lists = self._take_lists(values)
        if not any(entries for _, entries in lists):
            return nan
        try:
            return float(sum(self._quantities(reader, lists)))
        except BadAddressError:
            if self._inventory.verified:
                raise
            return nan

    def address(self, reader: Reader, values: Values) -> int:
        """Return the address of the item's quantity, of several entries the first, taking its lists from `values`.

        Raises:
            BadAddressError: if the item is not there.
        """
        lists = self._take_lists(values)
        self._quantities(reader, lists)
        for slot in self._slots:
            entries = lists[slot.list][1]
            return entries + slot.entry * self._inventory.entry_size + self._inventory.quantity_at
        raise BadAddressError(lists[0][1], f"{self._name} in the inventory here")

    def _take_lists(self, values: Values) -> list[tuple[int, int]]:
        """Return capacity and entries of each list."""
        keys = (self._keys(number) for number in range(len(self._inventory.lists)))
        return [(values.pop(capacity), values.pop(entries)) for capacity, entries in keys]

    def _quantities(self, reader: Reader, lists: list[tuple[int, int]]) -> list[int]:
        known = [self._quantity(reader, lists[slot.list], slot.entry) for slot in self._slots]
        if not known or None in known:
            self._slots = [slot for number, one in enumerate(lists) for slot in self._search(reader, number, one)]
            known = [self._quantity(reader, lists[slot.list], slot.entry) for slot in self._slots]
        return [quantity for quantity in known if quantity is not None]

    def _keys(self, number: int) -> tuple[str, str]:
        return f"{self._name}[{number}].capacity", f"{self._name}[{number}].entries"

    def _quantity(self, reader: Reader, one: tuple[int, int], entry: int) -> int | None:
        """Return an entry's quantity, None if it is another item's now."""
        capacity, entries = one
        if not entries or entry >= capacity:
            return None
        size, item_at, quantity_at = self._inventory.entry_size, self._inventory.item_at, self._inventory.quantity_at
        data = reader.read(entries + entry * size, size)
        first, last = self._inventory.items
        if not first <= int.from_bytes(data[item_at : item_at + 4], "little") <= last:
            return None
        return int.from_bytes(data[quantity_at : quantity_at + 4], "little")

    def _search(self, reader: Reader, number: int, one: tuple[int, int]) -> list[Slot]:
        capacity, entries = one
        if not entries or capacity > _MOST_ENTRIES:
            return []
        size = self._inventory.entry_size
        table = np.frombuffer(reader.read(entries, capacity * size), np.uint8).reshape(capacity, size)
        ids = np.ascontiguousarray(table[:, self._inventory.item_at : self._inventory.item_at + 4]).view("<u4")[:, 0]
        first, last = self._inventory.items
        return [Slot(number, int(entry)) for entry in np.flatnonzero((ids >= first) & (ids <= last))]
