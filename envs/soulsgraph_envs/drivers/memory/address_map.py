"""The address map of one game version: a TOML file that says where each field lies, and the module it is for."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, NamedTuple

from soulsgraph_envs.core.config import Between, Where
from soulsgraph_envs.core.data_files import load_data
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.drivers.realtime.link import FIELDS

#: The first page of an image holds its header.
HEADER_SIZE = 4096
_EXECUTABLE = 0x20000000
_RESOURCES = 2
_VERSION_TYPE = 16
_SUBFOLDER = 1 << 31
#: Signature and structure version of VS_FIXEDFILEINFO.
_FIXED_INFO = struct.pack("<2I", 0xFEEF04BD, 0x10000)
_WORD = re.compile(r"\?\?|[0-9A-Fa-f]{2}")
_FEWEST_FIXED = 3


class Section(NamedTuple):
    """A section: its name, distance from the image's start, bytes in memory, and whether it is code."""

    name: str
    rva: int
    size: int
    executable: bool


class PeHeader(NamedTuple):
    """The parts that a loader reads: the image's size, its sections, and its resources (rva, size)."""

    size_of_image: int
    sections: tuple[Section, ...]
    resources: tuple[int, int]


def parse_header(data: bytes) -> PeHeader | None:
    """Parse the first bytes of a 64-bit image; None if they are no whole header of one."""
    try:
        (at,) = struct.unpack_from("<I", data, 0x3C)
        signature, _, count, optional_size = struct.unpack_from("<4s2H12xH", data, at)
        (magic,) = struct.unpack_from("<H", data, at + 24)
        if data[:2] != b"MZ" or signature != b"PE\0\0" or magic != 0x20B:
            return None
        (size,) = struct.unpack_from("<I", data, at + 24 + 56)
        resources = struct.unpack_from("<2I", data, at + 24 + 112 + 8 * _RESOURCES)
        table = at + 24 + optional_size
        sections = tuple(_section(data, table + 40 * number) for number in range(count))
    except struct.error:
        return None
    return PeHeader(size, sections, resources)


def _section(data: bytes, at: int) -> Section:
    name, size, rva, rights = struct.unpack_from("<8s2I20xI", data, at)
    return Section(name.rstrip(b"\0").decode("latin-1"), rva, size, bool(rights & _EXECUTABLE))


def file_version(resources: bytes, rva: int) -> str:
    """Return the file version, such as "1.15.2.0", of a resource section that lies at `rva`; empty if it has none."""
    try:
        names = _entry(resources, 0, _VERSION_TYPE)
        languages = _entry(resources, names & ~_SUBFOLDER, None)
        data = _entry(resources, languages & ~_SUBFOLDER, None)
        place, size = struct.unpack_from("<2I", resources, data)
        info = resources[place - rva : place - rva + size]
        high, low = struct.unpack_from("<2I", info, info.index(_FIXED_INFO) + len(_FIXED_INFO))
    except (struct.error, ValueError, LookupError):
        return ""
    return ".".join(str(part) for part in (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF))


def _entry(resources: bytes, at: int, wanted: int | None) -> int:
    """Return the target of an entry of a resource folder: the one with an id, or the first."""
    named, numbered = struct.unpack_from("<12x2H", resources, at)
    for number in range(named + numbered):
        key, target = struct.unpack_from("<2I", resources, at + 16 + 8 * number)
        if wanted is None or key == wanted:
            return int(target)
    raise LookupError(wanted)


def is_pattern(text: str) -> bool:
    """Return whether a text is bytes and `??`, separated by blanks, with enough fixed bytes to search for."""
    words = text.split()
    fixed = sum(word != "??" for word in words)
    return fixed >= _FEWEST_FIXED and all(_WORD.fullmatch(word) for word in words)


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Turn a pattern into an expression over bytes.

    Raises:
        ValueError: if it is no pattern.
    """
    if not is_pattern(text):
        raise ValueError(f"expected bytes such as '48 8B 05 ?? ??', found {text!r}")
    parts = (b"." if word == "??" else re.escape(bytes.fromhex(word)) for word in text.split())
    return re.compile(b"".join(parts), re.DOTALL)


#: Format characters of the numeric types; of a bit, that of the byte it lies in.
FORMATS: Mapping[str, str] = {"i32": "i", "u32": "I", "u64": "Q", "f32": "f", "u8": "B", "bit": "B"}
#: Bytes of each.
SIZES: Mapping[str, int] = {kind: struct.calcsize("<" + code) for kind, code in FORMATS.items()}
_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1), "u8": (0, 255), "bit": (0, 1)}
_LARGEST_F32 = 3.4028234663852886e38


def pack(kind: str, value: float) -> bytes:
    """Return a number's bytes, rounded for integer types.

    Raises:
        GameError: if it is no finite number or does not fit the type.
    """
    low, high = _RANGES.get(kind, (-_LARGEST_F32, _LARGEST_F32))
    if not isfinite(value) or not low <= value <= high:
        raise GameError(
            f"a value to write: expected one of {kind} from {low:g} to {high:g}, found {value}; correct it."
        )
    return struct.pack("<" + FORMATS[kind], value if kind == "f32" else round(value))


def unpack(kind: str, data: bytes) -> float:
    """Return the number of its bytes."""
    number: float = struct.unpack("<" + FORMATS[kind], data)[0]
    return number


def decode_text(data: bytes) -> str:
    """Return a UTF-16 text up to its NUL; invalid bytes become a replacement character."""
    return data.decode("utf-16-le", "replace").split("\0", 1)[0]


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
                raise place.error("the name of a field of soulsgraph_envs.drivers.realtime.link", "another")
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
