"""For tests: a process in a dictionary, and a pyMeow with the pitfalls of the real one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from soulsgraph_envs.games.link import LinkError
from soulsgraph_envs.games.memory_reader import BadAddressError, Module, ProcessGoneError, Reader, Region


class FakeProcess:
    """A process: memory as bytes by address, modules by name; `dead` once it has ended."""

    def __init__(self, memory: Mapping[int, bytes], modules: Sequence[Module] = (), pid: int = 4242) -> None:
        self.memory = {address: bytearray(data) for address, data in memory.items()}
        self.modules, self.pid, self.dead = list(modules), pid, False

    def find(self, address: int, size: int) -> memoryview | None:
        """Return a span of memory; None if no block holds it whole."""
        for start, block in self.memory.items():
            if start <= address and address + size <= start + len(block):
                return memoryview(block)[address - start :][:size]
        return None


class FakeReader(Reader):
    """Read and write a fake process; `reads` and `writes` record the calls in order."""

    def __init__(self, process: FakeProcess) -> None:
        self.process, self.pid = process, process.pid
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, bytes]] = []

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes."""
        self.reads.append((address, size))
        return bytes(self._find(address, size))

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data` in one call."""
        span = self._find(address, len(data))
        self.writes.append((address, data))
        span[:] = data

    def module(self, name: str) -> Module:
        """Find a module by its file's name, in whatever case."""
        for one in self.process.modules:
            if one.name.lower() == name.lower():
                return self.sized(one)
        raise LinkError(f"module {name!r}: expected it in process {self.pid}, found none.")

    def regions(self, module: Module) -> Sequence[Region]:
        """Return the blocks that lie in a module."""
        spans = sorted((start, start + len(block)) for start, block in self.process.memory.items())
        end = module.base + module.size
        return [Region(max(a, module.base), min(b, end)) for a, b in spans if a < end and b > module.base]

    def running(self) -> bool:
        """Return whether the process is alive."""
        return not self.process.dead

    def close(self) -> None:
        """Do nothing."""

    def _find(self, address: int, size: int) -> memoryview:
        if self.process.dead:
            raise ProcessGoneError(self.pid)
        found = self.process.find(address, size)
        if found is None:
            raise BadAddressError(address)
        return found


class InterpreterEndedError(BaseException):
    """The real pyMeow would have ended the interpreter here."""


class FakePyMeow(ModuleType):
    """The module pyMeow over fake processes, with the pitfalls observed in the real one.

    Exceptions are classes made at each raise; a name finds the first process that has it as a part of
    its own; a process entry's base is another module's; every second walk over the processes fails;
    bad sizes end the interpreter; only bytes and lists can be written. It fails by Windows' error numbers, where an
    ended process and a page that may not be written are both access denied.
    """

    NimPyException = type("NimPyException", (Exception,), {"__module__": "nimpy"})

    def __init__(self, processes: Mapping[str, Sequence[FakeProcess]]) -> None:
        super().__init__("pyMeow")
        self._processes = [(name, one) for name, several in processes.items() for one in several]
        self._walks = 0

    def enum_processes(self) -> Iterator[dict[str, Any]]:
        """Walk the processes; fail every second time."""
        self._walk()
        yield from ({"name": name, "pid": one.pid, "debug": False, "base": 1} for name, one in self._processes)

    def open_process(self, process: int | str, debug: bool = False) -> dict[str, Any]:
        """Open by id, or by a part of the name."""
        self._walk()
        for name, one in self._processes:
            if process == one.pid or (isinstance(process, str) and process in name):
                return {"name": name, "pid": one.pid, "debug": debug, "base": one.modules[-1].base}
        raise self._error("Exception", f"Process {process!r} not found")

    def process_running(self, process: dict[str, Any]) -> bool:
        """Return whether a process has not ended."""
        return any(one.pid == process["pid"] and not one.dead for _, one in self._processes)

    def close_process(self, process: dict[str, Any]) -> None:
        """Do nothing."""

    def enum_modules(self, process: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Walk the modules of a process."""
        for one in self._walk_within(process).modules:
            yield {"name": one.name, "base": one.base, "size": one.size, "end": one.base + one.size}

    def enum_memory_regions(self, process: dict[str, Any], module: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Walk the regions of a module."""
        for start, block in self._walk_within(process).memory.items():
            if module["base"] <= start < module["end"]:
                yield {"start": start, "end": start + len(block), "size": len(block)}

    def r_bytes(self, process: dict[str, Any], address: int, size: int) -> bytes:
        """Read bytes."""
        if size == 0:
            raise self._error("IndexDefect", "index 0 not in 0 .. -1")
        if size >= 2**40:
            raise InterpreterEndedError("out of memory")
        return bytes(self._span("Read failed", process, address, size))

    def w_bytes(self, process: dict[str, Any], address: int, data: bytes | list[int]) -> None:
        """Write bytes or a list."""
        if not isinstance(data, bytes | list):
            raise TypeError("w_bytes() takes a list")
        self._span("Write failed", process, address, len(data))[:] = bytes(data)

    def _span(self, what: str, process: dict[str, Any], address: int, size: int) -> memoryview:
        if not isinstance(address, int) or not 0 <= address < 2**64:
            raise TypeError("address")
        one = self._of(process)
        found = None if one.dead else one.find(address, size)
        if found is None:
            denied = one.dead or what == "Write failed"
            reason = "5 - Access is denied." if denied else "299 - Only part of the request was completed."
            raise self._error("AccessViolationDefect", f"{what} [Address: {address:#x}] [Error: {reason}]")
        return found

    def _of(self, process: dict[str, Any]) -> FakeProcess:
        return next(one for _, one in self._processes if one.pid == process["pid"])

    def _walk_within(self, process: dict[str, Any]) -> FakeProcess:
        one = self._of(process)
        if one.dead:
            raise self._error("IOError", "[Error: 5 - Access is denied.]")
        self._walk()
        return one

    def _walk(self) -> None:
        self._walks += 1
        if self._walks % 2:
            raise self._error("IOError", "[Error: 31 - A device attached to the system is not functioning.]")

    def _error(self, name: str, text: str) -> Exception:
        made: type[Exception] = type(name, (self.NimPyException,), {"__module__": "nimpy"})
        return made(f"Unexpected error encountered: {text}")
