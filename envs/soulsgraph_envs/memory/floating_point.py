"""Undo the flush-to-zero mode (for numbers below 2.2e-308) that a fast-math library sets in a thread."""

from __future__ import annotations

import ctypes
import sys

from soulsgraph_envs.errors import GameError

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
