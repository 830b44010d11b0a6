"""Read a process through /proc on Linux, native or under Wine and Proton."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from soulsgraph_envs.drivers.memory.reader import (
    BadAddressError,
    Module,
    NoPermissionError,
    ProcessGoneError,
    ProcessNotFoundError,
    Reader,
    Region,
)
from soulsgraph_envs.drivers.realtime.link import LinkError, RefusedError

#: Characters of a process's name that the kernel keeps.
_COMM = 15
_REMEDY = "run as the game's user with ptrace_scope 0 (sysctl kernel.yama.ptrace_scope=0), or grant CAP_SYS_PTRACE"


_LIBC = ctypes.CDLL(None)
#: Most pieces that the kernel takes at once.
_MOST_SPANS = 1024


class _Span(ctypes.Structure):
    """The kernel's iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Mapping(NamedTuple):
    """One line of /proc/PID/maps."""

    start: int
    end: int
    readable: bool
    path: str


class LinuxReader(Reader):
    """Read and write through /proc/PID/mem; needs the same user and ptrace permission, or root."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file = -1
        try:
            self._file = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise ProcessGoneError(pid) from error
        except PermissionError as error:
            raise NoPermissionError(pid, _REMEDY) from error

    @classmethod
    def named(cls, name: str) -> LinuxReader:
        """Open the one process of a name; raises as `find_process` does."""
        return cls(find_process(name))

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
        if len(spans) > _MOST_SPANS or not hasattr(_LIBC, "process_vm_readv"):
            return one_by_one
        buffer = ctypes.create_string_buffer(size)
        local, remote = _Span(ctypes.addressof(buffer), size), (_Span * len(spans))(*(_Span(*span) for span in spans))

        def gather() -> bytes:
            if _LIBC.process_vm_readv(self.pid, ctypes.byref(local), 1, remote, len(spans), 0) != size:
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
            start, end = max(one.start, module.base), min(one.end, module.base + module.size)
            if not one.readable or start >= end:
                continue
            if joined and joined[-1].end == start:
                start = joined.pop().start
            joined.append(Region(start, end))
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
            return NoPermissionError(self.pid, _REMEDY)
        return BadAddressError(address)


def is_running(pid: int) -> bool:
    """Return whether a process is alive and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X", "x")


def find_process(name: str) -> int:
    """Find the one process that has a name: as its own or its command's, else as a program file it has mapped.

    Raises:
        ProcessNotFoundError: if none has it.
        RefusedError: if several have it and a mapped file does not decide.
    """
    living = [pid for pid in _process_ids() if is_running(pid)]
    named = [pid for pid in living if _is_named(pid, name)]
    if len(named) != 1:
        named = [pid for pid in named or living if _maps_file(pid, name)] or named
    if not named:
        raise ProcessNotFoundError(
            f"process {name!r}: expected it to run, found none; start the game, or give its pid."
        )
    if len(named) > 1:
        listed = ", ".join(str(pid) for pid in named)
        raise RefusedError(f"process {name!r}: expected one, found {listed}; give the pid of the game.")
    return named[0]


def read_mappings(pid: int) -> list[Mapping]:
    """Read the mappings of a process, in order of address.

    Raises:
        ProcessGoneError: if it has ended.
        NoPermissionError: if reading is not permitted.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except PermissionError as error:
        raise NoPermissionError(pid, _REMEDY) from error
    except OSError as error:
        raise ProcessGoneError(pid) from error
    if not lines and not is_running(pid):
        raise ProcessGoneError(pid)
    return [_mapping(line) for line in lines]


def _mapping(line: str) -> Mapping:
    parts = line.split(maxsplit=5)
    start, end = (int(part, 16) for part in parts[0].split("-"))
    return Mapping(start, end, parts[1][0] == "r", parts[5].removesuffix(" (deleted)") if len(parts) > 5 else "")


def _process_ids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and int(entry) != os.getpid())


def _is_named(pid: int, name: str) -> bool:
    folder = Path(f"/proc/{pid}")
    try:
        comm = (folder / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        command = (folder / "cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace")
    except OSError:
        return False
    return comm.lower() == name[:_COMM].lower() or _basename(command) == name.lower()


def _maps_file(pid: int, name: str) -> bool:
    try:
        return any(_basename(one.path) == name.lower() for one in read_mappings(pid))
    except LinkError:
        return False


def _basename(path: str) -> str:
    """Return the last part of a Linux or a Windows path, in small letters."""
    return path.replace("\\", "/").rpartition("/")[2].lower()
