"""Find characters by name in the blocks of the world that are loaded (layout: fromsoftware-rs, darksouls3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.memory.address_map import AddressMap, Chain, Walk
from soulsgraph_envs.memory.layout import Leaf, Values
from soulsgraph_envs.memory.reader import BadAddressError, Reader
from soulsgraph_envs.memory.values import decode_text

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
