"""One field's place in memory: values are turned into bytes there, and foreign writes are noticed."""

from __future__ import annotations

import struct
from collections.abc import Callable

from soulsgraph_envs.memory.address_map import Entry
from soulsgraph_envs.memory.values import FORMATS, decode_text

Value = float | str


class Cell:
    """A field and the bytes that hold it.

    `write` stores a value as the map's type and unit say; `foreign` gives the value if the memory no
    longer holds what was stored there: somebody else wrote it.
    """

    def __init__(self, entry: Entry, memory: memoryview) -> None:
        self._memory = memory
        self._encode, self._decode = _text(entry.bytes) if entry.type == "utf16" else _number(entry)
        self._mask = 1 << entry.bit if entry.type == "bit" else 0
        self._stored = self._read()

    def write(self, value: Value) -> None:
        """Store a value; nothing is touched where it is there already."""
        data = self._encode(value)
        if data != self._stored:
            self._stored = data
            self._memory[:] = self._merged(data) if self._mask else data

    def foreign(self) -> Value | None:
        """Return the value that somebody else wrote since the last `write` or `foreign`."""
        found = self._read()
        if found == self._stored:
            return None
        self._stored = found
        return self._decode(found)

    def _read(self) -> bytes:
        data = bytes(self._memory)
        return bytes([data[0] & self._mask]) if self._mask else data

    def _merged(self, data: bytes) -> bytes:
        return bytes([self._memory[0] & ~self._mask | data[0]])


def _number(entry: Entry) -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]]:
    layout, scale, shift = struct.Struct("<" + FORMATS[entry.type]), entry.scale, max(entry.bit, 0)
    whole = entry.type != "f32"

    def encode(value: Value) -> bytes:
        number = float(value) / scale
        return layout.pack(round(number) << shift if whole else number)

    def decode(data: bytes) -> Value:
        (number,) = layout.unpack(data)
        return float(number >> shift if whole else number) * scale

    return encode, decode


def _text(size: int) -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]]:
    def encode(value: Value) -> bytes:
        return str(value).encode("utf-16-le")[:size].ljust(size, b"\0")

    return encode, decode_text
