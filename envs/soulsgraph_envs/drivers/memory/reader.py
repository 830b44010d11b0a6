"""The reader contract: open one process, find its modules and read and write its memory."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from soulsgraph_envs.drivers.memory.address_map import HEADER_SIZE, SIZES, PeHeader, pack, parse_header, unpack
from soulsgraph_envs.drivers.realtime.link import LinkError, RefusedError

#: Read at once in a scan, and kept of the piece before, so that no match is cut in two.
_PIECE, _OVERLAP, _PAGE = 1 << 20, 256, 4096


class ProcessNotFoundError(LinkError):
    """No process has that name."""


class _MadeOfError(LinkError):
    """An error whose text is made from its arguments, so that it can be pickled."""

    def __init__(self, text: str, *arguments: object) -> None:
        super().__init__(text)
        self._arguments = arguments

    def __reduce__(self) -> tuple[type[_MadeOfError], tuple[object, ...]]:
        return type(self), self._arguments


class ProcessGoneError(_MadeOfError):
    """The process has ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid}: expected it to run, found it gone; start the game again.", pid)


class BadAddressError(_MadeOfError):
    """An address is not mapped; the pointers of a loading game lead to such addresses."""

    def __init__(self, address: int, what: str = "memory") -> None:
        text = f"address {address:#x}: expected {what}, found none; is the game loading, or the map another's?"
        super().__init__(text, address, what)


class NoPermissionError(_MadeOfError, RefusedError):
    """The process belongs to another user, or the system forbids reading it."""

    def __init__(self, pid: int, remedy: str) -> None:
        super().__init__(f"process {pid}: expected permission to read its memory, found none; {remedy}.", pid, remedy)


class Module(NamedTuple):
    """A program file in a process: its name, where it begins and how many bytes it takes."""

    name: str
    base: int
    size: int


class Region(NamedTuple):
    """A readable piece of memory, [start, end)."""

    start: int
    end: int


class Reader(ABC):
    """Read and write one process.

    Every method but `close` raises `ProcessGoneError` when the process has ended, `BadAddressError`
    when nothing lies there, `NoPermissionError` when reading is not permitted.
    """

    pid: int

    @abstractmethod
    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes."""

    @abstractmethod
    def write(self, address: int, data: bytes) -> None:
        """Write all of `data` in one call."""

    @abstractmethod
    def module(self, name: str) -> Module:
        """Find a module by its file's name, in whatever case."""

    @abstractmethod
    def regions(self, module: Module) -> Sequence[Region]:
        """Return the readable regions of a module in order, touching ones as one."""

    @abstractmethod
    def running(self) -> bool:
        """Return whether the process is alive; raises nothing."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the process; a second call does nothing."""

    def gatherer(self, spans: Sequence[tuple[int, int]]) -> Callable[[], bytes]:
        """Return a function that reads some spans (address, size) and returns them joined."""
        return lambda: b"".join(self.read(address, size) for address, size in spans)

    def read_value(self, address: int, kind: str) -> float:
        """Read one number of a type of `values.FORMATS`."""
        return unpack(kind, self.read(address, SIZES[kind]))

    def read_values(self, address: int, kinds: Sequence[str]) -> list[float]:
        """Read adjacent numbers in one call."""
        ends = [0, *accumulate(SIZES[kind] for kind in kinds)]
        data = self.read(address, ends[-1])
        return [unpack(kind, data[a:b]) for kind, (a, b) in zip(kinds, pairwise(ends), strict=True)]

    def write_value(self, address: int, kind: str, value: float) -> None:
        """Write one number; raises `GameError` if the type cannot hold it."""
        self.write(address, pack(kind, value))

    def read_pointer(self, address: int) -> int:
        """Read a pointer."""
        return int.from_bytes(self.read(address, 8), "little")

    def follow(self, start: int, offsets: Sequence[int]) -> int:
        """Walk a chain from an object: read a pointer at each offset but the last, add the last.

        Raises:
            BadAddressError: naming the address of a pointer that is null.
        """
        for offset in offsets[:-1]:
            at = start + offset
            start = self.read_pointer(at)
            if not start:
                raise BadAddressError(at, "a pointer")
        return start + offsets[-1]

    def scan(self, module: Module, patterns: Mapping[str, re.Pattern[bytes]]) -> dict[str, list[int]]:
        """Find all matches of some patterns in the module's code, or in the whole module if it has no header."""
        found: dict[str, list[int]] = {name: [] for name in patterns}
        for address, piece in self._pieces(module):
            for name, pattern in patterns.items():
                places = (address + match.start() for match in pattern.finditer(piece))
                found[name].extend(place for place in places if place not in found[name])
        return found

    def header(self, module: Module) -> PeHeader | None:
        """Parse the header of a Windows module; None for any other."""
        return parse_header(self.read(module.base, min(HEADER_SIZE, module.size)))

    def sized(self, module: Module) -> Module:
        """Return a module with the size in its header: under Wine only the header may be mapped from the file."""
        header = self.header(module)
        return module._replace(size=header.size_of_image) if header else module

    def _pieces(self, module: Module) -> Iterator[tuple[int, bytes]]:
        for code in self._code(module):
            for region in self.regions(module):
                start, end = max(code.start, region.start), min(code.end, region.end)
                for at in range(start, end, _PIECE):
                    yield from self._readable(at, min(at + _PIECE + _OVERLAP, end))

    def _readable(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read a span, or where a page of it cannot be read, the runs of pages between such pages."""
        try:
            yield start, self.read(start, end - start)
            return
        except BadAddressError:
            run = b""
        for page in range(start, end, _PAGE):
            size = min(_PAGE, end - page)
            try:
                run += self.read(page, size)
            except BadAddressError:
                yield page - len(run), run
                run = b""
        yield end - len(run), run

    def _code(self, module: Module) -> Sequence[Region]:
        header = self.header(module)
        whole = [Region(module.base, module.base + module.size)]
        if header is None:
            return whole
        spans = [Region(module.base + s.rva, module.base + s.rva + s.size) for s in header.sections if s.executable]
        return spans or whole
