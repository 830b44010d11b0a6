"""Find loaded characters by name, and count an item of an inventory (layout: fromsoftware-rs, darksouls3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import nan
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.drivers.memory.address_map import AddressMap, Chain, Inventory, Walk, decode_text
from soulsgraph_envs.drivers.memory.layout import Leaf, Node, Values
from soulsgraph_envs.drivers.memory.reader import BadAddressError, Reader
from soulsgraph_envs.drivers.realtime.link import LinkError

#: More characters than this in one block are no list of characters.
_MOST_ENTRIES = 4096
_POINTER = 8
#: A character that was never found is looked for again after this time.
_SEARCH_EVERY_S = 1.0
_A_NAME = re.compile(r"c\d{4}")


class Characters:
    """The addresses of a map's characters: by name once that has worked, until then by the map's own chain.

    `start` returns the present object of a base. `leaves` are the names to read along with the fields and
    to pass to `check`, so that another character in the same place is never mistaken for this one.
    """

    def __init__(
        self, reader: Reader, address_map: AddressMap, start: Callable[[str], int], clock_s: Callable[[], float]
    ) -> None:
        self._reader, self._map, self._start, self._clock_s = reader, address_map, start, clock_s
        self._walks = {name: one.walk for name, one in address_map.characters.items() if one.walk.name}
        self._found: dict[str, Chain] = {}
        self._searched_at_s = -_SEARCH_EVERY_S

    @property
    def found(self) -> frozenset[str]:
        """Return the characters that were found by name."""
        return frozenset(self._found)

    def placed(self, base: str, offsets: tuple[int, ...]) -> Chain:
        """Return the chain from a true base for one that may start at a character."""
        found = self._found.get(base)
        return Chain(found.base, found.offsets + offsets) if found else self._map.absolute(base, offsets)

    def due(self) -> bool:
        """Return whether to search for a character that was never found."""
        return len(self._found) < len(self._walks) and self._clock_s() - self._searched_at_s >= _SEARCH_EVERY_S

    def search(self) -> bool:
        """Search for all characters; return whether one has moved.

        Raises:
            LinkError: if one that was found before is gone.
        """
        self._searched_at_s = self._clock_s()
        before = dict(self._found)
        for name, walk in self._walks.items():
            start = self._start(walk.base)
            chain = find_character(self._reader, start, walk)
            if chain is not None:
                self._found[name] = chain
            elif name in before:
                raise BadAddressError(start, f"the character {walk.name} among those loaded")
        return self._found != before

    def leaves(self) -> Iterator[tuple[Chain, Leaf]]:
        """Return the leaves that read the characters' names."""
        for name, walk in self._walks.items():
            missing = None if name in self._found else ""
            yield self.placed(name, walk.name_offsets), Leaf(_key(name), f"{walk.name_bytes}s", decode_text, missing)

    def check(self, values: Values) -> bool:
        """Remove the names from the values read; return whether the characters found are still there.

        Raises:
            LinkError: if the chain of one not found by name leads to another character.
        """
        return all([self._is_at(name, values.pop(_key(name))) for name in self._walks])

    def confirm(self, name: str) -> bool:
        """Return False if a base is a character found by name that is no longer there; raises as `check`."""
        if name not in self._walks:
            return True
        walk, chain = self._walks[name], self.placed(name, self._walks[name].name_offsets)
        return self._is_at(name, _name(self._reader, self._start(chain.base), chain.offsets, walk))

    def _is_at(self, name: str, text: str) -> bool:
        wanted = self._walks[name].name
        if name not in self._found and text != wanted and _A_NAME.fullmatch(text):
            raise LinkError(f"{name}: expected the character {wanted} at its chain, found {text}; is it another fight?")
        return name not in self._found or text == wanted


def find_character(reader: Reader, start: int, walk: Walk) -> Chain | None:
    """Walk the loaded blocks from the object at `start`; return the chain to the pointer of the first of that name.

    Broken blocks and characters are skipped.

    Raises:
        LinkError: as the reader does.
    """
    try:
        loaded = int(reader.read_value(start + walk.count_at, "i32"))
        blocks = _pointers(reader.read(start + walk.blocks_at, _POINTER * walk.most_blocks), _POINTER)
    except BadAddressError:
        return None
    for number, block in enumerate(blocks[: max(loaded, 0)]):
        entry = _entry_of(reader, block, walk) if block else None
        if entry is not None:
            place = walk.blocks_at + _POINTER * number
            return Chain(walk.base, (place, walk.entries_at, entry * walk.entry_size))
    return None


def _entry_of(reader: Reader, block: int, walk: Walk) -> int | None:
    try:
        capacity = int(reader.read_value(block + walk.capacity_at, "u32"))
        entries = reader.read_pointer(block + walk.entries_at)
        if not 0 < capacity <= _MOST_ENTRIES or not entries:
            return None
        characters = _pointers(reader.read(entries, capacity * walk.entry_size), walk.entry_size)
    except BadAddressError:
        return None
    places = enumerate(characters)
    return next((at for at, one in places if one and _name(reader, one, walk.name_offsets, walk) == walk.name), None)


def _name(reader: Reader, start: int, offsets: tuple[int, ...], walk: Walk) -> str:
    try:
        return decode_text(reader.read(reader.follow(start, offsets), walk.name_bytes))
    except BadAddressError:
        return ""


def _pointers(data: bytes, stride: int) -> list[int]:
    return [int.from_bytes(data[at : at + _POINTER], "little") for at in range(0, len(data), stride)]


def _key(character: str) -> str:
    return f"{character}.name"


#: A longer list is none.
_MOST_ITEMS = 1 << 16


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
        if not entries or capacity > _MOST_ITEMS:
            return []
        size = self._inventory.entry_size
        table = np.frombuffer(reader.read(entries, capacity * size), np.uint8).reshape(capacity, size)
        ids = np.ascontiguousarray(table[:, self._inventory.item_at : self._inventory.item_at + 4]).view("<u4")[:, 0]
        first, last = self._inventory.items
        return [Slot(number, int(entry)) for entry in np.flatnonzero((ids >= first) & (ids <= last))]
