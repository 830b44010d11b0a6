"""How the simulator's functions are compiled, without losing their types on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function on its own.

    It is not cached by itself: numba looks at one file alone for that, so only the entry points of
    `fight`, which know of every file, are.
    """
    return cast(Function, njit(function))


def every_frame(function: Function) -> Function:
    """Compile a function that runs in every frame into its callers.

    A call that hands over record tables costs more than most of these functions do; without this a
    tick takes 1.4 times as long.
    """
    return cast(Function, njit(forceinline=True)(function))
