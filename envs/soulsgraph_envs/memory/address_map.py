"""The address map of one game version: a TOML file that says where each field lies in the process.

Offsets follow the usual convention: start at the base's pointer; add each offset but the last and read
a pointer there; add the last. A base is found by a byte pattern, or lies at a fixed distance (RVA) from
the start of the module. A character stands for the pointer that its chain leads to, or that a walk of
the loaded blocks finds by the character's name; fields may start at it as at a base.
Coordinates in a Souls game are stored as (x, up, y); a field's name in the map says which one it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from soulsgraph_envs.data_files import load_data
from soulsgraph_envs.live.fields import FIELDS
from soulsgraph_envs.memory.pe import is_pattern
from soulsgraph_envs.memory.values import SIZES
from soulsgraph_envs.schema import Between, Where

_Offset = Between(0, 2**31)
#: Bytes of each type; texts say theirs themselves, a bit is one of a byte.
TYPE_SIZES: Mapping[str, int] = {kind: SIZES[kind] for kind in ("i32", "u32", "f32", "u8", "bit")} | {"utf16": 0}
#: Bytes of a displacement in a 64-bit instruction.
DISPLACEMENT_SIZE = 4


class Chain(NamedTuple):
    """Lead from a base, through the pointer at each offset but the last, to an address."""

    base: str
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Base:
    """One global of the game: the instruction that names it, its fixed distance, or both.

    The target of a match is match + length + the displacement at match + displacement_at. It holds
    the pointer that chains start from, or is itself their start if not `dereference`. With `hook` the
    pointer is known only to code injected at the pattern, as Siphon's server does.
    """

    pattern: str = ""
    displacement_at: Annotated[int, Between(0, 64)] = 3
    length: Annotated[int, Between(0, 64)] = 7
    #: Distance from the start of the module; 0 if no source gives one.
    rva: Annotated[int, _Offset] = 0
    dereference: bool = True
    hook: bool = False
    source: str = ""


@dataclass(frozen=True)
class Walk:
    """Find a character by its name in the blocks of the world that are loaded.

    A block pointer list of `most_blocks` lies in the object of `base`; each block has a list of
    entries, each of them begins with the pointer of a character.
    """

    name: str = ""
    base: str = ""
    count_at: Annotated[int, _Offset] = 0
    blocks_at: Annotated[int, _Offset] = 0
    most_blocks: Annotated[int, Between(0, 1024)] = 0
    capacity_at: Annotated[int, _Offset] = 0
    entries_at: Annotated[int, _Offset] = 0
    entry_size: Annotated[int, Between(0, 4096)] = 0
    #: From a character to its name.
    name_offsets: Annotated[tuple[int, ...], _Offset] = ()
    name_bytes: Annotated[int, Between(0, 256)] = 0


@dataclass(frozen=True)
class Character:
    """A character: the chain to its pointer, and the walk that is tried before the chain if there is one."""

    base: str
    offsets: Annotated[tuple[int, ...], _Offset]
    walk: Walk = Walk()


@dataclass(frozen=True)
class Entry:
    """One field: its chain, type and unit; its value is the stored number times `scale`."""

    base: str
    offsets: Annotated[tuple[int, ...], _Offset]
    type: str
    scale: float = 1.0
    #: Which bit of the byte, of type "bit".
    bit: Annotated[int, Between(-1, 7)] = -1
    #: Room of the text, of type "utf16".
    bytes: Annotated[int, Between(0, 256)] = 0
    source: str = ""
    #: Whether a public source confirms it; one that is not names what serves instead.
    verified: bool = True
    fallback: str = ""

    @property
    def size(self) -> int:
        """Return the bytes that the field takes."""
        return TYPE_SIZES[self.type] or self.bytes


@dataclass(frozen=True)
class ItemList:
    """One list of an inventory: the offsets of its capacity (u32) and of the pointer to its entries."""

    capacity_at: Annotated[int, _Offset]
    entries_at: Annotated[int, _Offset]


@dataclass(frozen=True)
class Inventory:
    """A field that is the quantity of an item: the sum over a range of item ids in some lists.

    The chain leads to the pointer of the object that holds the lists. Lists have gaps: their whole
    capacity is searched.
    """

    base: str
    offsets: Annotated[tuple[int, ...], _Offset]
    lists: tuple[ItemList, ...]
    entry_size: Annotated[int, Between(1, 4096)]
    item_at: Annotated[int, _Offset]
    quantity_at: Annotated[int, _Offset]
    #: First and last item id.
    items: Annotated[tuple[int, int], Between(0, 2**32 - 1)]
    source: str = ""
    verified: bool = True
    fallback: str = ""


@dataclass(frozen=True)
class AddressMap:
    """The addresses of one version of a game."""

    name: str
    game: str
    #: File version of the executable; empty if it has none.
    version: str
    #: Name of the executable, which is the module that patterns are searched in too.
    process: str
    window: str
    bindings: str
    #: Source of every entry that names none of its own.
    source: str
    bases: dict[str, Base]
    fields: dict[str, Entry]
    characters: dict[str, Character] = field(default_factory=dict)
    inventories: dict[str, Inventory] = field(default_factory=dict)

    def entry(self, name: str) -> Entry | Inventory:
        """Return the entry of a field."""
        return self.fields.get(name) or self.inventories[name]

    def chain(self, name: str) -> Chain:
        """Return the chain of a field or an inventory from a true base, characters replaced by their own chain."""
        entry = self.entry(name)
        return self.absolute(entry.base, entry.offsets)

    def absolute(self, base: str, offsets: tuple[int, ...]) -> Chain:
        """Return a chain from a true base for one that may start at a character."""
        character = self.characters.get(base)
        return Chain(character.base, character.offsets + offsets) if character else Chain(base, offsets)

    def hooked(self, name: str) -> bool:
        """Return whether only injected code can reach a field."""
        return self.bases[self.chain(name).base].hook

    def readable(self) -> frozenset[str]:
        """Return the fields that can be read from outside the process."""
        return frozenset(name for name in (*self.fields, *self.inventories) if not self.hooked(name))


def load_address_map(name_or_path: str | Path) -> AddressMap:
    """Load the map of one game version, shipped or the user's own.

    Raises:
        UnknownNameError: if no shipped map has that name.
        DataError: for a missing, misspelt, mistyped, out-of-range or contradictory value.
    """
    return load_data("address map", AddressMap, name_or_path, _check_map)


def _check_map(loaded: AddressMap, where: Where) -> None:
    _check_bases(loaded, where.at("bases"))
    _check_characters(loaded, where.at("characters"))
    _check_names(loaded, where)
    for key, entry in loaded.fields.items():
        _check_entry(key, entry, where.at("fields").at(key))


def _check_bases(loaded: AddressMap, where: Where) -> None:
    for key, base in loaded.bases.items():
        place = where.at(key)
        if not base.pattern and not base.rva:
            raise place.error("a pattern or an rva", "neither")
        if base.pattern and not is_pattern(base.pattern):
            raise place.at("pattern").error("bytes such as '48 8B 05 ?? ??'", repr(base.pattern))
        end = base.displacement_at + DISPLACEMENT_SIZE
        if base.pattern and not base.hook and end > min(base.length, len(base.pattern.split())):
            raise place.at("displacement_at").error("four bytes inside the instruction and the pattern", end)


def _check_characters(loaded: AddressMap, where: Where) -> None:
    for key, character in loaded.characters.items():
        place, walk = where.at(key), character.walk
        if key in loaded.bases:
            raise place.error("a name that no base has", repr(key))
        for name, base in (("base", character.base), ("walk.base", walk.base if walk.name else character.base)):
            _check_start(base, loaded.bases, place.at(name))
        if walk.name and not (walk.name_offsets and walk.entry_size and walk.most_blocks and walk.name_bytes):
            raise place.at("walk").error("name_offsets, name_bytes, entry_size and most_blocks", "none")


def _check_names(loaded: AddressMap, where: Where) -> None:
    """Check that fields and their starts exist, and that unverified entries have a fallback."""
    for kind, items in (("fields", loaded.fields), ("inventories", loaded.inventories)):
        for key, item in items.items():
            place = where.at(kind).at(key)
            _check_start(item.base, [*loaded.bases, *loaded.characters], place.at("base"))
            if key not in FIELDS:
                raise place.error("the name of a field of soulsgraph_envs.live.fields", "another")
            if not item.verified and not item.fallback:
                raise place.at("fallback").error("what serves instead, as the entry is not verified", "none")
    for key in loaded.inventories.keys() & loaded.fields.keys():
        raise where.at("inventories").at(key).error("a name that is not in fields as well", repr(key))


def _check_start(base: str, starts: Collection[str], where: Where) -> None:
    if base not in starts:
        raise where.error(f"one of {', '.join(starts)}", repr(base))


def _check_entry(key: str, entry: Entry, where: Where) -> None:
    if entry.type not in TYPE_SIZES:
        raise where.at("type").error(f"one of {', '.join(TYPE_SIZES)}", repr(entry.type))
    if (entry.type == "utf16") != (FIELDS[key].kind == "text"):
        raise where.at("type").error(f"one for a {FIELDS[key].kind}", repr(entry.type))
    if (entry.type == "bit") != (entry.bit >= 0):
        raise where.at("bit").error("a bit for the type 'bit' and for no other", entry.bit)
    if (entry.type == "utf16") != (entry.bytes > 0) or entry.bytes % 2:
        raise where.at("bytes").error("an even room for the type 'utf16' and for no other", entry.bytes)
    if entry.scale == 0.0:
        raise where.at("scale").error("a factor that is not 0", entry.scale)
