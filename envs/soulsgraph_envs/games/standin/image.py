"""The stand-in's module: an executable's file as a scanner finds it mapped, with code that points at its globals."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.memory.address_map import Base, compile_pattern
from soulsgraph_envs.games.standin.process import EXECUTE, PAGE, READ, WRITE, map_file, protect, release, reserve, view

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


_CODE_SIZE = 2 << 20
#: Room between two places that code uses.
_SPACING = 0x1000
#: Globals whose place no source gives lie from here on, below every place that one gives.
_UNPLACED_AT = 0x1000000


class Image:
    """A module mapped at `base`, with the globals of an address map and a file that its header comes from."""

    def __init__(self, bases: Mapping[str, Base], version: str, file: Path) -> None:
        #: Each global's offset in the module; of a hooked one, that of a slot before its code.
        self._places = {
            name: base.rva or (_code_at(number) - 8 if base.hook else _UNPLACED_AT + number * _SPACING)
            for number, (name, base) in enumerate(bases.items())
        }
        code_end = PAGE + _CODE_SIZE
        data_end = -(-(max(self._places.values()) + PAGE) // PAGE) * PAGE
        self.sections = Sections(PAGE, code_end, data_end, data_end + PAGE)
        self.base = 0
        self._file = file
        self._resources = write_resources(version, data_end)
        self._code = _code(bases, self._places)
        file.write_bytes(write_header(self.sections) + self._resources.ljust(PAGE, b"\0"))

    def load(self, base: int) -> None:
        """Map the image at a base, its globals zero; an image that lies elsewhere is unmapped first."""
        self.unload()
        reserve(base, self.sections.end)
        map_file(base, PAGE, self._file)
        view(base + self.sections.code, len(self._code))[:] = self._code
        protect(base + self.sections.code, _CODE_SIZE, READ | EXECUTE)
        view(base + self.sections.resources, len(self._resources))[:] = self._resources
        self.base = base

    def address(self, name: str) -> int:
        """Return the address of a global."""
        return self.base + self._places[name]

    def point(self, name: str, target: int) -> None:
        """Let a global point at `target`; a global in the code stands for what a hook there would capture."""
        code, in_code = self.base + self.sections.code, self._places[name] < self.sections.data
        if in_code:
            protect(code, _CODE_SIZE, READ | WRITE)
        view(self.address(name), 8)[:] = struct.pack("<Q", target)
        if in_code:
            protect(code, _CODE_SIZE, READ | EXECUTE)

    def unload(self) -> None:
        """Unmap the image, if it is mapped."""
        if self.base:
            release(self.base, self.sections.end)
            self.base = 0


def _code_at(number: int) -> int:
    return PAGE + (number + 1) * _SPACING


def _code(bases: Mapping[str, Base], places: Mapping[str, int]) -> bytes:
    """Return code bytes that hold every pattern exactly once, with a displacement that leads to its global."""
    code = bytearray(random.Random(_CODE_SIZE).randbytes(_CODE_SIZE))
    for number, (name, base) in enumerate(bases.items()):
        if base.pattern:
            at = _code_at(number) - PAGE
            for index, word in enumerate(base.pattern.split()):
                if word != "??":
                    code[at + index] = int(word, 16)
            if not base.hook:
                struct.pack_into("<i", code, at + base.displacement_at, places[name] - (PAGE + at + base.length))
            found = [match.start() + PAGE for match in compile_pattern(base.pattern).finditer(code)]
            if found != [_code_at(number)]:
                raise GameError(
                    f"the pattern of {name!r}: expected it at {_code_at(number):#x} alone, found it at "
                    f"{[hex(place) for place in found]}: its fixed bytes do not fit; correct the address map."
                )
    return bytes(code)
