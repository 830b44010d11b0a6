"""The parts of the world that a map does not reach by chains alone: loaded characters, an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from soulsgraph_envs.memory.address_map import AddressMap, Entry, Walk
from soulsgraph_envs.standin.blocks import Block, Value

#: Another character, loaded before the boss, and an item beside the one that counts.
_BYSTANDER, _OTHER_ITEM, _OTHER_QUANTITY = "c1100", 0x400001F4, 7
_CAPACITY, _OTHER_PLACE, _ITEM_PLACE = 8, 1, 4
_U32 = Entry("", (), "u32")


class Place(NamedTuple):
    """The place and type of a value."""

    block: Block
    offset: int
    entry: Entry

    def kept(self) -> Place:
        """Reserve room for it in its block."""
        self.block.value(self.offset, self.entry.size)
        return self


class Constant(NamedTuple):
    """A value that is written once."""

    place: Place
    value: Value


def lay_out_crowd(address_map: AddressMap, roots: Mapping[str, Block], boss_name: str) -> list[Constant]:
    """Load the characters that a walk looks through: a bystander in one block, the boss in the next."""
    constants = []
    for character in address_map.characters.values():
        walk = character.walk
        if walk.name:
            boss, world = roots[character.base].walk(character.offsets), roots[walk.base]
            constants.append(_number(world, walk.count_at, 2))
            for index, (person, name) in enumerate(((Block(), _BYSTANDER), (boss, boss_name))):
                constants += _lay_out_person(walk, world.below(walk.blocks_at + 8 * index), person, name)
    return constants


def lay_out_stock(
    address_map: AddressMap, roots: Mapping[str, Block]
) -> tuple[list[tuple[str, Place]], list[Constant]]:
    """Fill inventories: the counted item in the first list, something else before it, gaps between."""
    places: list[tuple[str, Place]] = []
    constants: list[Constant] = []
    for name, inventory in address_map.inventories.items():
        chain = address_map.chain(name)
        owner = roots[chain.base].walk(chain.offsets)
        for number, one in enumerate(inventory.lists):
            entries = owner.below(one.entries_at)
            entries.value(0, inventory.entry_size * _CAPACITY)
            constants.append(_number(owner, one.capacity_at, _CAPACITY))
            other, counted = _OTHER_PLACE * inventory.entry_size, _ITEM_PLACE * inventory.entry_size
            constants.append(_number(entries, other + inventory.item_at, _OTHER_ITEM))
            constants.append(_number(entries, other + inventory.quantity_at, _OTHER_QUANTITY))
            if number == 0:
                constants.append(_number(entries, counted + inventory.item_at, inventory.items[0]))
                places.append((name, Place(entries, counted + inventory.quantity_at, _U32)))
    return places, constants


def _lay_out_person(walk: Walk, block: Block, person: Block, name: str) -> list[Constant]:
    entries = block.below(walk.entries_at)
    # The first entry stays empty: a place somebody left.
    entries.point(walk.entry_size, person)
    *way, last = walk.name_offsets
    named = Place(person.walk(way), last, Entry("", (), "utf16", bytes=walk.name_bytes)).kept()
    return [_number(block, walk.capacity_at, 2), Constant(named, name)]


def _number(block: Block, offset: int, value: int) -> Constant:
    return Constant(Place(block, offset, _U32).kept(), value)
