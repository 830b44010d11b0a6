"""Values in memory, little-endian: their types, and packing that refuses values that do not fit."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import isfinite

from soulsgraph_envs.errors import GameError

#: Format characters of the numeric types; of a bit, that of the byte it lies in.
FORMATS: Mapping[str, str] = {"i32": "i", "u32": "I", "u64": "Q", "f32": "f", "u8": "B", "bit": "B"}
#: Bytes of each.
SIZES: Mapping[str, int] = {kind: struct.calcsize("<" + code) for kind, code in FORMATS.items()}
_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1), "u8": (0, 255), "bit": (0, 1)}
_LARGEST_F32 = 3.4028234663852886e38


def pack(kind: str, value: float) -> bytes:
    """Return a number's bytes, rounded for integer types.

    Raises:
        GameError: if it is no finite number or does not fit the type.
    """
    low, high = _RANGES.get(kind, (-_LARGEST_F32, _LARGEST_F32))
    if not isfinite(value) or not low <= value <= high:
        raise GameError(
            f"a value to write: expected one of {kind} from {low:g} to {high:g}, found {value}; correct it."
        )
    return struct.pack("<" + FORMATS[kind], value if kind == "f32" else round(value))


def unpack(kind: str, data: bytes) -> float:
    """Return the number of its bytes."""
    number: float = struct.unpack("<" + FORMATS[kind], data)[0]
    return number


def decode_text(data: bytes) -> str:
    """Return a UTF-16 text up to its NUL; invalid bytes become a replacement character."""
    return data.decode("utf-16-le", "replace").split("\0", 1)[0]
