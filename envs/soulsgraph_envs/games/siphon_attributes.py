"""Siphon's attribute file: the attributes that a server finds in the game, and how the driver reads fields from them.

`[process_info]` and `[attributes.*]` are Siphon's own format, which its clients send to a server.
`[reads.*]` and `[writes.*]` are the driver's: which attribute holds which fields at which byte, so that
one call reads many; Siphon's own clients ignore them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from soulsgraph_envs.core.config import Between, NonEmpty, load_data, require
from soulsgraph_envs.games.address_map import DISPLACEMENT_SIZE, FieldEncoding, is_pattern
from soulsgraph_envs.games.link import FIELDS

#: An array is at most so long.
_MOST_BYTES = 1 << 22
SiphonType = Literal["int", "float", "bool", "array"]
Value = int | float | bool | bytes
#: Siphon's types as Python's, and how the first two are stored.
PYTHON_TYPES: Mapping[str, Callable[..., Value]] = {"int": int, "float": float, "bool": bool, "array": bytes}
FORMATS = {"int": "<i", "float": "<f"}


@dataclass(frozen=True)
class Attribute:
    """One attribute of a process, found by a byte pattern and a chain of pointers.

    "aobscan": the displacement begins at the pattern's first wildcard and counts from 7 bytes after
    the match; the pointer there starts the chain. "dll": the pointer that code injected at the pattern
    captured, of the target that is locked on.
    """

    offsets: NonEmpty[Annotated[int, Between(0, 2**64 - 1)]]
    type: SiphonType
    pattern: str
    #: Bytes, of type "array".
    length: Annotated[int, Between(0, _MOST_BYTES)] = 0
    method: Literal["aobscan", "dll"] = "aobscan"
    #: Bits of a "bool" that count.
    mask: Annotated[int, Between(1, 0xFF)] = 0xFF

    def __post_init__(self) -> None:
        require(is_pattern(self.pattern), "pattern", "be bytes such as '48 8B 05 ?? ??'")
        words = self.pattern.split()
        whole = self.method == "dll" or "??" in words[: 1 - DISPLACEMENT_SIZE]
        require(whole, "pattern", "have a wildcard where the displacement's four bytes begin")

    @property
    def size(self) -> int:
        """Return the bytes that the attribute takes."""
        return self.length if self.type == "array" else 1 if self.type == "bool" else 4

    def decode(self, data: bytes) -> Value:
        """Return the value of the attribute's bytes."""
        if self.type == "bool":
            return bool(data[0] & self.mask)
        return data if self.type == "array" else PYTHON_TYPES[self.type](struct.unpack(FORMATS[self.type], data)[0])


@dataclass(frozen=True, kw_only=True)
class Place(FieldEncoding):
    """A field in an attribute: the byte it begins at, and how it is stored."""

    at: Annotated[int, Between(0, _MOST_BYTES)] = 0


#: Fields of one attribute.
Layout = dict[str, Place]


@dataclass(frozen=True)
class ProcessInfo:
    """The game's process and the title of its window."""

    name: str
    window_name: str = ""


@dataclass(frozen=True)
class AttributeFile:
    """A whole attribute file."""

    process_info: ProcessInfo
    attributes: dict[str, Attribute]
    reads: dict[str, Layout] = field(default_factory=dict)
    #: Attributes to write, each with the fields it takes; the first that fits is taken.
    writes: dict[str, Layout] = field(default_factory=dict)
    #: Key bindings of the game, by name.
    bindings: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for key, layouts in (("reads", self.reads), ("writes", self.writes)):
            for name, layout in layouts.items():
                require(name in self.attributes, f"{key}.{name}", "be the name of an attribute")
                for field_name, place in layout.items():
                    at, size = f"{key}.{name}.{field_name}", self.attributes[name].size
                    require(field_name in FIELDS, at, "be a field of soulsgraph_envs.games.link")
                    fits = (place.type == "utf16") == (FIELDS[field_name].kind == "text")
                    require(fits, f"{at}.type", "be utf16 for a text alone")
                    require(place.at + place.size <= size, at, f"lie within the attribute's {size} bytes")

    @property
    def supplies(self) -> frozenset[str]:
        """Name the fields that can be read."""
        return frozenset(name for layout in self.reads.values() for name in layout)

    @property
    def writable(self) -> frozenset[str]:
        """Name the fields that can be written."""
        return frozenset(name for layout in self.writes.values() for name in layout)


def load_attributes(name_or_path: str | Path) -> AttributeFile:
    """Load an attribute file, shipped or the user's own; one written only for Siphon supplies no fields.

    Raises:
        UnknownNameError: if no shipped file has that name.
        DataError: for a missing, misspelt, mistyped, out-of-range or contradictory value.
    """
    return load_data("attribute file", AttributeFile, name_or_path)
