"""The calls of pyMeow that our reader makes, by the functions of Windows that its source names.

The real one is on no package index. On a PC under Wine this file is installed as the module `pyMeow`; here nothing
imports it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import wintypes
from typing import Any

#: Some parts of ctypes exist on Windows only.
_CTYPES: Any = ctypes
_KERNEL = _CTYPES.WinDLL("kernel32", use_last_error=True)
_PROCESSES, _MODULES, _ALL_ACCESS, _ALIVE = 0x02, 0x18, 0x1FFFFF, 259
for _function in (_KERNEL.CreateToolhelp32Snapshot, _KERNEL.OpenProcess):
    _function.restype = ctypes.c_void_p


class NimPyException(Exception):  # noqa: N818  (pyMeow's name)
    """What every error of pyMeow is."""


class _ProcessEntry(ctypes.Structure):
    _fields_ = (
        ("size", wintypes.DWORD),
        ("usage", wintypes.DWORD),
        ("pid", wintypes.DWORD),
        ("heap", ctypes.c_void_p),
        ("rest", wintypes.DWORD * 5),
        ("name", wintypes.WCHAR * 260),
    )


class _ModuleEntry(ctypes.Structure):
    _fields_ = (
        ("size", wintypes.DWORD),
        ("ids", wintypes.DWORD * 4),
        ("base", ctypes.c_void_p),
        ("bytes", wintypes.DWORD),
        ("handle", ctypes.c_void_p),
        ("name", wintypes.WCHAR * 256),
        ("path", wintypes.WCHAR * 260),
    )


class _MemoryRegion(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("allocation", ctypes.c_void_p),
        ("allocated", wintypes.DWORD * 2),
        ("size", ctypes.c_size_t),
        ("rest", wintypes.DWORD * 3),
    )


def enum_processes() -> Iterator[dict[str, Any]]:
    """Walk the processes."""
    for one in _walk("Process32", _PROCESSES, 0, _ProcessEntry()):
        yield {"name": one.name, "pid": one.pid, "debug": False, "base": 0}


def open_process(process: int, debug: bool = False) -> dict[str, Any]:
    """Open a process by its id."""
    handle = _KERNEL.OpenProcess(_ALL_ACCESS, False, process)
    if not handle:
        raise _error(f"Unable to open Process [Pid: {process}]")
    return {"name": "", "pid": process, "debug": debug, "base": 0, "handle": handle}


def close_process(process: dict[str, Any]) -> None:
    """Close a process."""
    _KERNEL.CloseHandle(ctypes.c_void_p(process["handle"]))


def process_running(process: dict[str, Any]) -> bool:
    """Return whether a process has no exit code yet."""
    code = wintypes.DWORD()
    _KERNEL.GetExitCodeProcess(ctypes.c_void_p(process["handle"]), ctypes.byref(code))
    return code.value == _ALIVE


def enum_modules(process: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk the modules of a process."""
    for one in _walk("Module32", _MODULES, process["pid"], _ModuleEntry()):
        yield {"name": one.name, "base": one.base, "size": one.bytes, "end": one.base + one.bytes}


def enum_memory_regions(process: dict[str, Any], module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk the regions of a module."""
    at, region = module["base"], _MemoryRegion()
    while at < module["end"]:
        size = ctypes.sizeof(region)
        handle, address = ctypes.c_void_p(process["handle"]), ctypes.c_void_p(at)
        if not _KERNEL.VirtualQueryEx(handle, address, ctypes.byref(region), ctypes.c_size_t(size)):
            return
        yield {"start": at, "end": at + region.size, "size": region.size}
        at += region.size


def r_bytes(process: dict[str, Any], address: int, size: int) -> bytes:
    """Read bytes."""
    buffer = ctypes.create_string_buffer(size)
    _move("ReadProcessMemory", "readSeq failed", process, address, buffer, size)
    return buffer.raw


def w_bytes(process: dict[str, Any], address: int, data: bytes) -> None:
    """Write bytes."""
    _move("WriteProcessMemory", "WriteArray failed", process, address, ctypes.create_string_buffer(data), len(data))


def _move(call: str, what: str, process: dict[str, Any], address: int, buffer: Any, size: int) -> None:
    handle, there = ctypes.c_void_p(process["handle"]), ctypes.c_void_p(address)
    if not getattr(_KERNEL, call)(handle, there, buffer, ctypes.c_size_t(size), None):
        raise _error(f"{what} [Address: {address:#x}]")


def _walk(kind: str, what: int, pid: int, entry: Any) -> Iterator[Any]:
    snapshot = ctypes.c_void_p(_KERNEL.CreateToolhelp32Snapshot(what, pid))
    entry.size = ctypes.sizeof(entry)
    try:
        going = getattr(_KERNEL, f"{kind}FirstW")(snapshot, ctypes.byref(entry))
        if not going:
            raise _error(f"{kind} failed")
        while going:
            yield entry
            going = getattr(_KERNEL, f"{kind}NextW")(snapshot, ctypes.byref(entry))
    finally:
        _KERNEL.CloseHandle(snapshot)


def _error(text: str) -> NimPyException:
    number = _CTYPES.get_last_error()
    return NimPyException(f"Unexpected error encountered: {text} [Error: {number} - {_CTYPES.FormatError(number)}]")
