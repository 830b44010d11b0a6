"""The header of a Windows executable in memory (Microsoft's "PE Format"), and byte patterns in its code."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

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
