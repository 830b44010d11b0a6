"""Compilation of the simulator's functions that keeps their types for the type checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

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
