"""Read and write the memory of one process: the contract, and a reader each for Linux, where a game may run under Wine
or Proton, and for Windows, through pyMeow, whose traps are kept behind it.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import importlib.util
import os
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import FORMATS, HEADER_SIZE, PeHeader, parse_header, unpack
from soulsgraph_envs.games.link import LinkError, RefusedError

#: Read at once in a scan, and kept of the piece before, so that no match is cut in two.
_PIECE, _OVERLAP, _PAGE = 1 << 20, 256, 4096


class ProcessNotFoundError(LinkError):
    """No process has that name."""


class ProcessGoneError(LinkError):
    """The process has ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid}: expected it to run, found it gone; start the game again.")


class BadAddressError(LinkError):
    """An address is not mapped; the pointers of a loading game lead to such addresses."""

    def __init__(self, address: int, what: str = "memory") -> None:
        super().__init__(
            f"address {address:#x}: expected {what}, found none; is the game loading, or the map another's?"
        )


class NoPermissionError(RefusedError):
    """The process belongs to another user, or the system forbids reading it."""

    def __init__(self, pid: int, remedy: str) -> None:
        super().__init__(f"process {pid}: expected permission to read its memory, found none", remedy)


class Module(NamedTuple):
    """A program file in a process: its name, where it begins and how many bytes it takes."""

    name: str
    base: int
    size: int


class Region(NamedTuple):
    """A piece of memory, [start, end), and the file that is mapped there."""

    start: int
    end: int
    readable: bool = True
    path: str = ""


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
        """Read one number of a type of `address_map.FORMATS`."""
        return unpack(kind, self.read(address, struct.calcsize("<" + FORMATS[kind])))

    def write_parts(self, parts: Mapping[int, bytes]) -> None:
        """Write bytes by their addresses, those that touch in one piece."""
        pieces: list[tuple[int, bytes]] = []
        for address, data in sorted(parts.items()):
            if pieces and pieces[-1][0] + len(pieces[-1][1]) == address:
                address, before = pieces.pop()
                data = before + data
            pieces.append((address, data))
        for address, data in pieces:
            self.write(address, data)

    def read_pointer(self, address: int) -> int:
        """Read a pointer."""
        return int.from_bytes(self.read(address, 8), "little")

    def follow(self, start: int, offsets: Sequence[int], pointers: dict[int, int] | None = None) -> int:
        """Walk a chain from an object: read a pointer at each offset but the last, add the last.

        `pointers` are those read already, by their addresses; the chain's are added.

        Raises:
            BadAddressError: naming the address of a pointer that is null.
        """
        known = {} if pointers is None else pointers
        for offset in offsets[:-1]:
            at = start + offset
            start = known[at] = known.get(at) or self.read_pointer(at)
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
        header, whole = self.header(module), (module.base, module.base + module.size)
        sections = header.sections if header else ()
        code = [(module.base + one.rva, module.base + one.rva + one.size) for one in sections if one.executable]
        for first, last in code or [whole]:
            for region in self.regions(module):
                end = min(last, region.end)
                for at in range(max(first, region.start), end, _PIECE):
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


def only_process(name: str, pids: Sequence[int]) -> int:
    """Return the one process that has a name; raises `ProcessNotFoundError` for none, `RefusedError` for several."""
    if not pids:
        raise ProcessNotFoundError(
            f"process {name!r}: expected it to run, found none; start the game, or give its pid."
        )
    if len(pids) > 1:
        listed = ", ".join(map(str, pids))
        raise RefusedError(
            f"process {name!r}: expected one, found {listed}; name one by `pid` in a games file, and that by `games`."
        )
    return pids[0]


#: Characters of a process's name that the kernel keeps.
_COMM = 15
_PTRACE = "run as the game's user with ptrace_scope 0 (sysctl kernel.yama.ptrace_scope=0), or grant CAP_SYS_PTRACE"
_READ_SPANS: Any = getattr(ctypes.CDLL(None), "process_vm_readv", None) if sys.platform == "linux" else None


class _Span(ctypes.Structure):
    """The kernel's iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class LinuxReader(Reader):
    """Read and write through /proc/PID/mem; needs the same user and ptrace permission, or root."""

    def __init__(self, process: int | str) -> None:
        """Open a process by its id or its whole name."""
        self._file = -1
        self.pid = process if isinstance(process, int) else find_process(process)
        try:
            self._file = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise ProcessGoneError(self.pid) from error
        except PermissionError as error:
            raise NoPermissionError(self.pid, _PTRACE) from error

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes."""
        try:
            data = os.pread(self._file, size, address)
        except (OSError, OverflowError) as error:
            raise self._reason(address, error) from error
        if len(data) != size:
            raise self._cut_off(address, len(data))
        return data

    def gatherer(self, spans: Sequence[tuple[int, int]]) -> Callable[[], bytes]:
        """Return a function that reads some spans in one system call."""
        one_by_one, size = super().gatherer(spans), sum(size for _, size in spans)
        if _READ_SPANS is None:
            return one_by_one
        buffer = ctypes.create_string_buffer(size)
        local, remote = _Span(ctypes.addressof(buffer), size), (_Span * len(spans))(*(_Span(*span) for span in spans))

        def gather() -> bytes:
            if _READ_SPANS(self.pid, ctypes.byref(local), 1, remote, len(spans), 0) != size:
                return one_by_one()
            return buffer.raw

        return gather

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data` in one call."""
        try:
            written = os.pwrite(self._file, data, address)
        except (OSError, OverflowError) as error:
            raise self._reason(address, error) from error
        if written != len(data):
            raise self._cut_off(address, written)

    def module(self, name: str) -> Module:
        """Find a mapped file by its name; of a Windows program only the header may be mapped from the file."""
        own = [one for one in read_mappings(self.pid) if _basename(one.path) == name.lower()]
        if not own:
            raise RefusedError(f"module {name!r}: expected it in process {self.pid}, found none; is that the game?")
        end = max(one.end for one in own if one.path == own[0].path)
        return self.sized(Module(name, own[0].start, end - own[0].start))

    def regions(self, module: Module) -> Sequence[Region]:
        """Return the readable regions of a module, touching ones as one."""
        joined: list[Region] = []
        for one in read_mappings(self.pid):
            if one.readable and one.start < module.base + module.size and one.end > module.base:
                start = joined.pop().start if joined and joined[-1].end == one.start else one.start
                joined.append(Region(start, one.end))
        return joined

    def running(self) -> bool:
        """Return whether the process is alive; one that ended and waits for its parent does not."""
        return is_running(self.pid)

    def close(self) -> None:
        """Let go of the process; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def _cut_off(self, address: int, size: int) -> LinkError:
        """Return the error of an incomplete read or write of `size` bytes; with no byte the memory itself is gone.

        That happens just before the process ends, and when it becomes another program.
        """
        return self._reason(address + size) if size else ProcessGoneError(self.pid)

    def _reason(self, address: int, error: Exception | None = None) -> LinkError:
        """Return the error of an ended process, of an unmapped address, or of a lack of permission."""
        if self._file < 0 or not self.running():
            return ProcessGoneError(self.pid)
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
            return NoPermissionError(self.pid, _PTRACE)
        return BadAddressError(address)


def is_running(pid: int) -> bool:
    """Return whether a process is alive and no zombie."""
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X", "x")
    return False


def find_process(name: str) -> int:
    """Find the one process that has a name: as its own or its command's, else as a program file it has mapped.

    Raises:
        ProcessNotFoundError: if none has it.
        RefusedError: if several have it and a mapped file does not decide.
    """
    # Imported here: whoever names a game by its pid need not wait for it.
    import psutil

    living, named, wanted = list[int](), list[int](), {name.lower(), name[:_COMM].lower()}
    for one in psutil.process_iter(["name", "cmdline", "status"]):
        if one.pid != os.getpid() and one.info["status"] != psutil.STATUS_ZOMBIE:
            living.append(one.pid)
            called = one.info["name"] or "", *(one.info["cmdline"] or ())[:1]
            named += [one.pid] * bool(wanted.intersection(map(_basename, called)))
    if len(named) != 1:
        named = [pid for pid in named or living if _maps_file(pid, name)] or named
    return only_process(name, named)


def read_mappings(pid: int) -> list[Region]:
    """Read the mappings of a process, in order of address.

    Raises:
        ProcessGoneError: if it has ended.
        NoPermissionError: if reading is not permitted.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except PermissionError as error:
        raise NoPermissionError(pid, _PTRACE) from error
    except OSError as error:
        raise ProcessGoneError(pid) from error
    if not lines and not is_running(pid):
        raise ProcessGoneError(pid)
    return [_region(line) for line in lines]


def _region(line: str) -> Region:
    parts = line.split(maxsplit=5)
    start, end = (int(part, 16) for part in parts[0].split("-"))
    return Region(start, end, parts[1][0] == "r", parts[5].removesuffix(" (deleted)") if len(parts) > 5 else "")


def _maps_file(pid: int, name: str) -> bool:
    with suppress(LinkError):
        return any(_basename(one.path) == name.lower() for one in read_mappings(pid))
    return False


def _basename(path: str) -> str:
    """Return the last part of a Linux or a Windows path, in small letters."""
    return path.replace("\\", "/").rpartition("/")[2].lower()


#: Of Windows' _controlfp: the bits for such numbers, and the setting that keeps them.
_MASK, _KEEP = 0x03000000, 0x00000000
#: Of fesetenv: the environment a program starts with, on x86.
_DEFAULT = -1


def subnormals_kept() -> bool:
    """Return whether this thread keeps numbers below the smallest normal one."""
    smallest = sys.float_info.min
    return smallest / 4 > 0.0


def restore_floating_point() -> None:
    """Restore the floating-point mode that a program starts with, for this thread.

    Raises:
        GameError: if that did not help.
    """
    if sys.platform == "win32":
        ctypes.CDLL("ucrtbase")._controlfp(_KEEP, _MASK)
    else:
        ctypes.CDLL(None).fesetenv(ctypes.c_void_p(_DEFAULT))
    if not subnormals_kept():
        raise GameError("floating-point mode: expected small numbers kept, found them flushed; restart the program.")


#: User space ends here; a size beyond the other ends the interpreter.
_LAST_ADDRESS, _LARGEST = 2**47, 1 << 26
#: Walking the processes fails when one of them ends meanwhile.
_TRIES = 8
_ACCESS_DENIED = 5
_ERROR_NUMBER = re.compile(r"\[Error: (\d+)")
_WHERE = "install the archive of github.com/qb-0/pyMeow/releases with pip"
_ADMINISTRATOR = "run this program as administrator, like the game"
_T = TypeVar("_T")


def load_pymeow(load: Callable[[str], ModuleType] = importlib.import_module) -> ModuleType:
    """Import pyMeow, on Windows only, and restore the floating-point mode that it changes.

    Raises:
        GameError: if it is not installed, or another package of its name is.
    """
    if sys.platform != "win32" and load is importlib.import_module:
        raise GameError("pyMeow: expected Windows, found another system, where importing it may crash; use /proc.")
    try:
        loaded = load("pyMeow")
    except ImportError as error:
        raise GameError(f"pyMeow: expected it to be installed, found {_in_its_place()}; {_WHERE}.") from error
    finally:
        restore_floating_point()
    if not hasattr(loaded, "r_bytes") or not hasattr(loaded, "NimPyException"):
        raise GameError(f"pyMeow: expected the memory reader, found another package of that name; {_WHERE}.")
    return loaded


def _in_its_place() -> str:
    if importlib.util.find_spec("pymeow") is None:
        return "none"
    return "PyPI's pymeow, which fetches pictures of cats (remove it: pip uninstall pymeow)"


class PymeowReader(Reader):
    """Read and write through pyMeow; every call is checked first, every exception one of ours."""

    def __init__(self, process: int | str, pymeow: ModuleType | None = None) -> None:
        """Open a process by its id or its whole name; `pymeow` is the module if it is loaded already."""
        self._pymeow: Any = pymeow or load_pymeow()
        self.pid, self._process = 0, None
        self.pid = process if isinstance(process, int) else self._find(process)
        self._process = self._retried(lambda: self._pymeow.open_process(self.pid))

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes."""
        self._check(address, size)
        data = self._call(lambda: self._pymeow.r_bytes(self._process, address, size), address)
        if len(data) != size:
            raise BadAddressError(address + len(data))
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data` in one call."""
        self._check(address, len(data))
        self._call(lambda: self._pymeow.w_bytes(self._process, address, bytes(data)), address)

    def module(self, name: str) -> Module:
        """Find a module by its file's name; never by the process entry's base, which may be any module's."""
        found = self._retried(lambda: list(self._pymeow.enum_modules(self._process)))
        own = [one for one in found if str(one["name"]).lower() == name.lower()]
        if not own:
            if not self.running():
                raise ProcessGoneError(self.pid)
            raise RefusedError(f"module {name!r}: expected it in process {self.pid}, found none; is that the game?")
        return self.sized(Module(name, int(own[0]["base"]), int(own[0]["size"])))

    def regions(self, module: Module) -> Sequence[Region]:
        """Return the regions of a module as pyMeow lists them, or all of it if it lists none."""
        asked = {"name": module.name, "base": module.base, "size": module.size, "end": module.base + module.size}
        listed = self._retried(lambda: list(self._pymeow.enum_memory_regions(self._process, asked)))
        regions = [Region(int(one["start"]), int(one["end"])) for one in listed]
        return regions or [Region(module.base, module.base + module.size)]

    def running(self) -> bool:
        """Return whether the process is alive."""
        try:
            return self._process is not None and bool(self._pymeow.process_running(self._process))
        except self._pymeow.NimPyException:
            return False

    def close(self) -> None:
        """Let go of the process; a second call does nothing."""
        if self._process is not None:
            process, self._process = self._process, None
            with suppress(self._pymeow.NimPyException):
                self._pymeow.close_process(process)

    def _find(self, name: str) -> int:
        """Find a process by its whole name: pyMeow's own search takes the first that has a part of it."""
        listed = self._retried(lambda: list(self._pymeow.enum_processes()))
        return only_process(name, [int(one["pid"]) for one in listed if str(one["name"]).lower() == name.lower()])

    def _check(self, address: int, size: int) -> None:
        if self._process is None:
            raise ProcessGoneError(self.pid)
        if not isinstance(address, int) or not 0 < address < _LAST_ADDRESS or not 0 < size <= _LARGEST:
            raise BadAddressError(int(address))

    def _retried(self, call: Callable[[], _T]) -> _T:
        """Retry a call that walks all processes if one of them ended meanwhile."""
        tries = 1
        while True:
            try:
                return call()
            except self._pymeow.NimPyException as error:
                ended = self._process is not None and not self.running()
                if not ended and tries == _TRIES and _error_number(error) == _ACCESS_DENIED:
                    raise NoPermissionError(self.pid, _ADMINISTRATOR) from None
                if ended or tries == _TRIES:
                    raise ProcessGoneError(self.pid) from None
                tries += 1

    def _call(self, call: Callable[[], _T], address: int) -> _T:
        try:
            return call()
        except self._pymeow.NimPyException:
            if not self.running():
                raise ProcessGoneError(self.pid) from None
            # Windows denies access to an ended process and to a page, but never rights that opening has granted.
            raise BadAddressError(address) from None


def _error_number(error: Exception) -> int:
    """Return the system's error number that pyMeow writes into its exceptions, 0 if there is none."""
    number = _ERROR_NUMBER.search(str(error))
    return int(number[1]) if number else 0


_READERS: Mapping[str, Callable[[int | str], Reader]] = {"linux": LinuxReader, "win32": PymeowReader}


def open_process(name: str, pid: int = 0) -> Reader:
    """Open a process with this system's reader, by its id if that is not 0.

    Raises:
        LinkError: if it does not run or may not be read.
        GameError: if this system has no reader, or its package is missing.
    """
    if sys.platform not in _READERS:
        raise GameError(
            f"a game's memory: expected Linux or Windows, found {sys.platform}; run there, or use the driver siphon."
        )
    return _READERS[sys.platform](pid or name)
