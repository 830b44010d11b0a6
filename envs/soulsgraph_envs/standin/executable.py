"""Write a Windows executable's header and version resource, the file a process scanner finds mapped.

Layout as in Microsoft's "PE Format": DOS header, signature, COFF header, optional header of 64-bit
images, section table; the version lies in a resource tree of three levels (type, name, language).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from soulsgraph_envs.standin.native import PAGE

_HEADER_AT = 0x80
_MACHINE_64, _OPTIONAL_64 = 0x8664, 0x20B
_OPTIONAL_SIZE, _RESOURCE_DIRECTORY = 240, 2
_CODE, _DATA = 0x60000020, 0xC0000040
_VERSION_TYPE, _ENGLISH = 16, 1033


class Sections(NamedTuple):
    """The offsets of an image's sections from its base; each ends where the next begins."""

    code: int
    data: int
    resources: int
    end: int


def write_header(sections: Sections) -> bytes:
    """Return the header page of an image."""
    optional = struct.pack("<HBB5I", _OPTIONAL_64, 14, 0, sections.data - sections.code, 0, 0, sections.code, PAGE)
    optional += struct.pack("<Q2I6HI", 0x140000000, PAGE, 0x200, 6, 0, 0, 0, 6, 0, 0)
    optional += struct.pack("<3I2H4Q2I", sections.end, PAGE, 0, 2, 0, 1 << 20, PAGE, 1 << 20, PAGE, 0, 16)
    directories = [(0, 0)] * 16
    directories[_RESOURCE_DIRECTORY] = (sections.resources, sections.end - sections.resources)
    optional += b"".join(struct.pack("<2I", *directory) for directory in directories)
    assert len(optional) == _OPTIONAL_SIZE
    table = _section(b".text", sections.code, sections.data, _CODE, 0)
    table += _section(b".data", sections.data, sections.resources, _DATA, 0)
    table += _section(b".rsrc", sections.resources, sections.end, 0x40000040, PAGE)
    coff = struct.pack("<2H3I2H", _MACHINE_64, 3, 0, 0, 0, _OPTIONAL_SIZE, 0x22)
    start = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", _HEADER_AT)
    return (start.ljust(_HEADER_AT, b"\0") + b"PE\0\0" + coff + optional + table).ljust(PAGE, b"\0")


def write_resources(version: str, resources: int) -> bytes:
    """Return a resource section that begins at the offset `resources` and holds the file's version, as "1.15.2"."""
    numbers = ([int(part) for part in version.split(".")] + [0, 0, 0, 0])[:4]
    high, low = numbers[0] << 16 | numbers[1], numbers[2] << 16 | numbers[3]
    fixed = struct.pack("<13I", 0xFEEF04BD, 0x10000, high, low, high, low, 0x3F, 0, 0x40004, 1, 0, 0, 0)
    key = "VS_VERSION_INFO\0".encode("utf-16-le")
    value_at = -(-(6 + len(key)) // 4) * 4
    info = struct.pack("<3H", value_at + len(fixed), len(fixed), 0) + key
    info = info.ljust(value_at, b"\0") + fixed
    levels = b"".join(
        struct.pack("<2I4H", 0, 0, 0, 0, 0, 1) + struct.pack("<2I", name, target)
        for name, target in ((_VERSION_TYPE, 24 | 1 << 31), (1, 48 | 1 << 31), (_ENGLISH, 72))
    )
    return levels + struct.pack("<4I", resources + len(levels) + 16, len(info), 0, 0) + info


def _section(name: bytes, start: int, end: int, rights: int, raw_at: int) -> bytes:
    raw_size = PAGE if raw_at else 0
    return name.ljust(8, b"\0") + struct.pack("<6I2HI", end - start, start, raw_size, raw_at, 0, 0, 0, 0, rights)
