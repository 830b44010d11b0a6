"""Compilation of functions that keeps their types for the type checker, and where compiled code is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

from llvmlite import binding
from numba import config, njit
from numba.core.caching import IndexDataCacheFile

from soulsgraph_envs.core.machine import is_writable, user_folder

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


def cached(**options: Any) -> Callable[[Function], Function]:
    """Compile a function by numba's options, and keep its code on disk where there is a place for it."""

    def compile(function: Function) -> Function:
        if (folder := cache_folder()) is None:
            return cast(Function, njit(**options)(function))
        # numba would look for a place beside each source and in the home folder, and fail where both are read-only.
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            made = njit(cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before
        if hasattr(made, "_cache"):  # Not where compilation is turned off.
            made._cache._cache_file.__class__ = _FittingCache
        return cast(Function, made)

    return compile


class _FittingCache(IndexDataCacheFile):
    """Kept code of which nothing is taken that this version of us cannot read, so that it is compiled anew.

    An index names classes of ours; one that was renamed since, or half a file, ends numba with its own error.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            return cast(dict[Any, str], super()._load_index())
        except Exception:  # What unpickling raises depends on what is wrong.
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} is not this version's") from error


@cache
def cache_folder() -> Path | None:
    """Return where compiled code is kept for this kind of processor; None where no folder can be written.

    It is below `NUMBA_CACHE_DIR`, the installation or the user's cache folder: the first that can be written. Kinds of
    processors that share an installation each have their own.
    """
    kind = processor_kind()
    # numba's variable comes before everything else, as with numba itself.
    chosen = [Path(config.CACHE_DIR)] if config.CACHE_DIR else []
    own = user_folder("cache")
    users = [] if own is None else [own / "soulsgraph"]
    places = (base / kind for base in (*chosen, Path(__file__).parents[1] / "__pycache__", *users))
    return next(filter(is_writable, places), None)


def cache_remark() -> str:
    """Return what a user should know of where compiled code is kept; empty where it is kept."""
    if cache_folder() is not None:
        return ""
    found = "no folder for it can be written: every process compiles it anew, up to a minute each"
    return f"compiled code: {found}; set NUMBA_CACHE_DIR to a folder that only you can write"


def processor_kind() -> str:
    """Return a name of what code is compiled for: the processor and its features, or those chosen for numba."""
    processor = str(config.CPU_NAME or binding.get_host_cpu_name())
    features = config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    digest = hashlib.sha256(f"{processor} {features}".encode()).hexdigest()
    return f"compiled-{processor}-{digest[:8]}"


def checksum(files: Iterable[Path]) -> int:
    """Return a checksum of source files that compiled code comes from, in the order of their paths.

    numba's cache looks at an entry point's own file alone, and at the values that the function encloses: one
    that encloses this checksum is compiled again after a change in any of the files.
    """
    found = 0
    for file in sorted(files):
        found = crc32(file.read_bytes(), found)
    return found
