"""What a Parquet file's own numbers say that decoding it would take, read before anything is decoded.

Few bytes may stand for millions of equal values, or for a long list in one row. How many they are is said in the footer
and before each page, in Thrift's compact protocol. It is read here: Arrow ends the process on some damaged footers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: A footer holds the header twice, and some hundred bytes of each column.
_MOST_FOOTER_BYTES = 2**22
#: An hour's fight has a few pages a column.
_MOST_PAGES = 100_000
_DEEPEST = 16
_MAGIC = b"PAR1"
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
#: Encodings in which a value takes what it is long, or is one of a dictionary: PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED
#: and RLE_DICTIONARY. In others a few bytes may stand for a long text.
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
#: A struct of Thrift: values by field number.
_Struct = dict[int, Any]


class PagesError(ValueError):
    """The numbers of a Parquet file contradict each other, or its rows would take more than they may."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found = expected, found


@dataclass
class _Compact:
    """Read Thrift's compact protocol from bytes, from a place on; nothing beyond the bytes is taken for a value."""

    data: memoryview
    place: int = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.place:
            raise PagesError("a size within the file", size)
        self.place += size
        return bytes(self.data[self.place - size : self.place])

    def byte(self) -> int:
        if self.place >= len(self.data):
            raise PagesError("numbers within the file", "its end")
        self.place += 1
        return self.data[self.place - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise PagesError("a number of 64 bits", "a longer one")

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> _Struct:
        fields: _Struct = {}
        last = 0
        while header := self.byte():
            last = last + (header >> 4) if header >> 4 else self.number()
            # Which of two a reader takes is its own affair.
            if last in fields:
                raise PagesError("each field once", f"field {last} twice")
            kind = header & 0x0F
            fields[last] = kind == 1 if kind in (1, 2) else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise PagesError(f"at most {_DEEPEST} levels", "more")
        match kind:
            case 1 | 2 | 3:
                return self.byte()
            case 4 | 5 | 6:
                return self.number()
            case 7:
                return self.take(8)
            case 8:
                return self.take(self.varint())
            case 9 | 10:
                header = self.byte()
                size = header >> 4 if header >> 4 < 15 else self.varint()
                return [self.value(header & 0x0F, depth + 1) for _ in self._times(size)]
            case 11:
                size = self.varint()
                kinds = self.byte() if size else 0
                return [
                    (self.value(kinds >> 4, depth + 1), self.value(kinds & 0x0F, depth + 1)) for _ in self._times(size)
                ]
            case 12:
                return self.struct(depth + 1)
        raise PagesError("a type of Thrift", kind)

    def _times(self, size: int) -> range:
        # Every entry takes a byte or more.
        if size > len(self.data) - self.place:
            raise PagesError("a size within the file", size)
        return range(size)


def check_pages(content: memoryview, schema: pa.Schema, rows: int, longest_list: int) -> int:
    """Check the numbers of a file of this schema and these rows, and return the bytes that it takes when it is decoded.

    A list without a fixed length has at most `longest_list` entries a row, on average. The bytes are those of all
    pages, and 8 for every value in them.

    Raises:
        PagesError: if a column has more values than that, a page other ones than the footer says, or an encoding in
            which few bytes stand for a long text.
    """
    content = content.cast("B")  # Arrow's bytes are signed ones.
    groups = _footer(content).get(4, [])
    if sum(_positive(group, 3) for group in groups) != rows:
        raise PagesError(f"row groups of {rows:,} rows together", "others")
    longest = {spec.name: _entries(spec.type, longest_list) for spec in schema}
    unpacked = 0
    for group in groups:
        for chunk in group[1]:
            if 1 in chunk:
                raise PagesError("every column in the file itself", "one in another file")
            column: _Struct = chunk[3]
            name, count = str(column[3][0], "utf-8"), _positive(column, 5)
            most = _positive(group, 3) * longest[name]
            if count > most:
                raise PagesError(f"at most {most:,} values in {name}", f"{count:,}")
            unpacked += 8 * count + _bytes_of_pages(content, name, column)
    return unpacked


def _entries(kind: pa.DataType, longest_list: int) -> int:
    """Return how many values a row of a column has at most."""
    return kind.list_size if pa.types.is_fixed_size_list(kind) else longest_list if pa.types.is_list(kind) else 1


def _footer(content: memoryview) -> _Struct:
    size = int.from_bytes(content[-8:-4], "little")
    if bytes(content[-4:]) != _MAGIC or not 0 < size <= min(len(content) - 8, _MOST_FOOTER_BYTES):
        raise PagesError(f"a footer of at most {_MOST_FOOTER_BYTES:,} bytes", f"{size:,}")
    return _Compact(content[-8 - size : -8]).struct()


def _positive(struct: Mapping[int, Any], field: int) -> int:
    value = struct[field]
    if type(value) is not int or value < 0:
        raise PagesError("a number of at least 0", value)
    return value


def _bytes_of_pages(content: memoryview, name: str, column: _Struct) -> int:
    """Return the bytes of a column's pages once they are decompressed, whose values must be as many as it says."""
    start, size, expected = _positive(column, 9), _positive(column, 7), _positive(column, 5)
    if 0 < column.get(11, 0) < start:
        start = _positive(column, 11)
    found = unpacked = 0
    for page in _pages(content[: start + size], start):
        kind = _positive(page, 1)
        unpacked += _positive(page, 2)
        if kind == _DICTIONARY_PAGE:
            count, encoding = _positive(page[7], 1), page[7][2]
            # Every entry stands somewhere in the column.
            if count > expected:
                raise PagesError(f"at most {expected:,} entries in the dictionary of {name}", f"{count:,}")
        elif kind in (_DATA_PAGE, _DATA_PAGE_V2):
            header = page[5] if kind == _DATA_PAGE else page[8]
            found, encoding = found + _positive(header, 1), header[2 if kind == _DATA_PAGE else 4]
        else:
            raise PagesError("pages of values and dictionaries", f"one of kind {kind} in {name}")
        if encoding not in _ENCODINGS:
            raise PagesError("plain values or a dictionary", f"encoding {encoding} in {name}")
    if found != expected:
        raise PagesError(f"{expected:,} values in {name}, as the footer says", f"{found:,} in its pages")
    return unpacked


def _pages(content: memoryview, start: int) -> Iterator[_Struct]:
    """Yield the headers of the pages that lie one behind the other to the end of the bytes."""
    reader = _Compact(content, start)
    for _ in range(_MOST_PAGES):
        if reader.place >= len(content):
            return
        header = reader.struct()
        yield header
        size = _positive(header, 3)
        if size > len(content) - reader.place:
            raise PagesError("a page within the file", f"{size:,} bytes")
        reader.place += size
    raise PagesError(f"at most {_MOST_PAGES:,} pages of a column", "more")
