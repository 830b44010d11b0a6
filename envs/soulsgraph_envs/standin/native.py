"""Linux functions of the stand-in: memory at a chosen address, a process name, permission to be read."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

from soulsgraph_envs.errors import GameError

PAGE = mmap.PAGESIZE
#: Rights to memory, as in sys/mman.h.
READ, WRITE, EXECUTE = 1, 2, 4

# Not named by the mmap module: values of linux/mman.h and linux/prctl.h.
_MAP_FIXED, _MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x10, 0x4000, 0x100000
_MAP_FAILED = ctypes.c_void_p(-1).value
_SET_NAME, _SET_PTRACER, _ANYONE = 15, 0x59616D61, ctypes.c_ulong(-1)


def reserve(address: int, size: int) -> None:
    """Map `size` zero bytes at `address`, readable and writable; pages never touched cost nothing.

    Raises:
        GameError: if something lies there already, or the system has no such memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    _map(address, size, READ | WRITE, flags, -1)


def map_file(address: int, size: int, file: Path) -> None:
    """Map the first `size` bytes of a file over memory reserved at `address`, read-only."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        _map(address, size, READ, mmap.MAP_PRIVATE | _MAP_FIXED, descriptor)
    finally:
        os.close(descriptor)


def protect(address: int, size: int, rights: int) -> None:
    """Change the access rights of whole pages of memory."""
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights):
        raise _refused("the rights of memory to be changed")


def release(address: int, size: int) -> None:
    """Free memory; reading it fails from now on."""
    if _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise _refused("memory to be freed")


def view(address: int, size: int) -> memoryview:
    """View this process's memory as writable bytes; it must stay mapped as long as the view is used."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def name_process(name: str) -> None:
    """Set this process's name (15 bytes of it), by which others find it, and let them read its memory."""
    _libc().prctl(_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)
    # Where only ancestors may read a process, it can allow everyone of its user; elsewhere this does nothing.
    _libc().prctl(_SET_PTRACER, _ANYONE, 0, 0, 0)


def forbid_core_dump() -> None:
    """Disable core dumps of this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _map(address: int, size: int, rights: int, flags: int, descriptor: int) -> None:
    system_map = _libc().mmap
    system_map.restype = ctypes.c_void_p
    found = system_map(ctypes.c_void_p(address), ctypes.c_size_t(size), rights, flags, descriptor, ctypes.c_long(0))
    if found == _MAP_FAILED:
        raise _refused(f"{size} bytes of memory at {address:#x}")


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise GameError(f"the stand-in game: expected Linux, found {sys.platform}: start it on a Linux machine.")
    return ctypes.CDLL(None, use_errno=True)


def _refused(wanted: str) -> GameError:
    return GameError(
        f"the stand-in game: expected {wanted}, found {os.strerror(ctypes.get_errno())}: "
        "end other programs or try again."
    )
