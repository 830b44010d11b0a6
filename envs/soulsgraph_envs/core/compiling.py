"""Compilation of the simulator's functions that keeps their types for the type checker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function on its own.

    It is not cached: numba's cache checks only a function's own file, so only the entry points of
    `fight`, whose cache key covers every file, are cached.
    """
    return cast(Function, njit(function))


def every_frame(function: Function) -> Function:
    """Compile a function that runs in every frame into its callers.

    A call that passes record tables costs more than most of these functions; without inlining a
    tick takes 1.4 times as long.
    """
    return cast(Function, njit(forceinline=True)(function))


def checksum(files: Iterable[Path]) -> int:
    """Return a checksum of source files that compiled code comes from, in the order of their paths.

    numba's cache looks at an entry point's own file alone, and at the values that the function encloses: one
    that encloses this checksum is compiled again after a change in any of the files.
    """
    found = 0
    for file in sorted(files):
        found = crc32(file.read_bytes(), found)
    return found
