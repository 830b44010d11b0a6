"""The stand-in's module: an image as a loader leaves it, with code that points at its globals.

As under Wine only the header page comes from the file; the sections behind it are plain memory.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.memory.address_map import Base
from soulsgraph_envs.memory.pe import compile_pattern
from soulsgraph_envs.standin.executable import Sections, write_header, write_resources
from soulsgraph_envs.standin.native import EXECUTE, PAGE, READ, WRITE, map_file, protect, release, reserve, view

_CODE_SIZE = 2 << 20
#: Room between two places that code uses.
_SPACING = 0x1000
#: Globals whose place no source gives lie from here on, below every place that one gives.
_UNPLACED_AT = 0x1000000


class Image:
    """A module mapped at `base`, with the globals of an address map and a file that its header comes from."""

    def __init__(self, bases: Mapping[str, Base], version: str, file: Path) -> None:
        self._places = _placed(bases)
        code_end = PAGE + _CODE_SIZE
        data_end = -(-(max(self._places.values()) + PAGE) // PAGE) * PAGE
        self.sections = Sections(PAGE, code_end, data_end, data_end + PAGE)
        self.base = 0
        self._file = file
        self._resources = write_resources(version, data_end)
        self._code = _code(bases, self._places)
        file.write_bytes(write_header(self.sections) + self._resources.ljust(PAGE, b"\0"))

    @property
    def size(self) -> int:
        """Return the image's size, as in its header."""
        return self.sections.end

    def load(self, base: int) -> None:
        """Map the image at a base, its globals zero; an image that lies elsewhere is unmapped first."""
        self.unload()
        reserve(base, self.size)
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
            release(self.base, self.size)
            self.base = 0


def _placed(bases: Mapping[str, Base]) -> dict[str, int]:
    """Return each global's offset in the module; of a hooked one, that of a slot before its code."""
    places = {}
    for number, (name, base) in enumerate(bases.items()):
        chosen = _code_at(number) - 8 if base.hook else _UNPLACED_AT + number * _SPACING
        places[name] = base.rva or chosen
    return places


def _code_at(number: int) -> int:
    return PAGE + (number + 1) * _SPACING


def _code(bases: Mapping[str, Base], places: Mapping[str, int]) -> bytes:
    """Return code bytes that hold every pattern exactly once, with a displacement that leads to its global."""
    code = bytearray(random.Random(_CODE_SIZE).randbytes(_CODE_SIZE))
    for number, (name, base) in enumerate(bases.items()):
        if base.pattern:
            _write_instruction(code, _code_at(number) - PAGE, base, places[name])
            found = [match.start() + PAGE for match in compile_pattern(base.pattern).finditer(code)]
            if found != [_code_at(number)]:
                raise GameError(
                    f"the pattern of {name!r}: expected it at {_code_at(number):#x} alone, found it at "
                    f"{[hex(place) for place in found]}: its fixed bytes do not fit; correct the address map."
                )
    return bytes(code)


def _write_instruction(code: bytearray, at: int, base: Base, place: int) -> None:
    for index, word in enumerate(base.pattern.split()):
        if word != "??":
            code[at + index] = int(word, 16)
    if not base.hook:
        struct.pack_into("<i", code, at + base.displacement_at, place - (PAGE + at + base.length))
