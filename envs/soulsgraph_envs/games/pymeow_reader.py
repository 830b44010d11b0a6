"""Read a process on Windows through pyMeow, whose traps are kept behind this module."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeVar

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games import memory_reader
from soulsgraph_envs.games.link import RefusedError

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
_ACCESS_DENIED, _NO_SUCH_PROCESS = 5, 3
_ERROR_NUMBER = re.compile(r"\[Error: (\d+)")
_WHERE = "install the archive of github.com/qb-0/pyMeow/releases with pip"
_REMEDY = "run this program as administrator, like the game"
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


class PymeowReader(memory_reader.Reader):
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
            raise memory_reader.BadAddressError(address + len(data))
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data` in one call."""
        self._check(address, len(data))
        self._call(lambda: self._pymeow.w_bytes(self._process, address, bytes(data)), address)

    def module(self, name: str) -> memory_reader.Module:
        """Find a module by its file's name; never by the process entry's base, which may be any module's."""
        found = self._retried(lambda: list(self._pymeow.enum_modules(self._process)))
        own = [one for one in found if str(one["name"]).lower() == name.lower()]
        if not own:
            if not self.running():
                raise memory_reader.ProcessGoneError(self.pid)
            raise RefusedError(f"module {name!r}: expected it in process {self.pid}, found none; is that the game?")
        return self.sized(memory_reader.Module(name, int(own[0]["base"]), int(own[0]["size"])))

    def regions(self, module: memory_reader.Module) -> Sequence[memory_reader.Region]:
        """Return the regions of a module as pyMeow lists them, or all of it if it lists none."""
        asked = {"name": module.name, "base": module.base, "size": module.size, "end": module.base + module.size}
        listed = self._retried(lambda: list(self._pymeow.enum_memory_regions(self._process, asked)))
        regions = [memory_reader.Region(int(one["start"]), int(one["end"])) for one in listed]
        return regions or [memory_reader.Region(module.base, module.base + module.size)]

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
        return memory_reader.only_process(
            name, [int(one["pid"]) for one in listed if str(one["name"]).lower() == name.lower()]
        )

    def _check(self, address: int, size: int) -> None:
        if self._process is None:
            raise memory_reader.ProcessGoneError(self.pid)
        if not isinstance(address, int) or not 0 < address < _LAST_ADDRESS or not 0 < size <= _LARGEST:
            raise memory_reader.BadAddressError(int(address))

    def _retried(self, call: Callable[[], _T]) -> _T:
        """Retry a call that walks all processes if one of them ended meanwhile."""
        tries = 1
        while True:
            try:
                return call()
            except self._pymeow.NimPyException as error:
                ended = self._process is not None and not self.running()
                if not ended and tries == _TRIES and _error_number(error) == _ACCESS_DENIED:
                    raise memory_reader.NoPermissionError(self.pid, _REMEDY) from None
                if ended or tries == _TRIES:
                    raise memory_reader.ProcessGoneError(self.pid) from None
                tries += 1

    def _call(self, call: Callable[[], _T], address: int) -> _T:
        try:
            return call()
        except self._pymeow.NimPyException as error:
            if _error_number(error) == _NO_SUCH_PROCESS or not self.running():
                raise memory_reader.ProcessGoneError(self.pid) from None
            if "access required" in str(error):
                raise memory_reader.NoPermissionError(self.pid, _REMEDY) from None
            # Windows denies access to an ended process and to a page, but never rights that opening has granted.
            raise memory_reader.BadAddressError(address) from None


def _error_number(error: Exception) -> int:
    """Return the system's error number that pyMeow writes into its exceptions, 0 if there is none."""
    number = _ERROR_NUMBER.search(str(error))
    return int(number[1]) if number else 0
