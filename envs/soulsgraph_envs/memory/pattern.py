"""Byte patterns of machine code: hexadecimal bytes with `??` for any byte."""

from __future__ import annotations

import re

_WORD = re.compile(r"\?\?|[0-9A-Fa-f]{2}")
_FEWEST_FIXED = 3


def is_pattern(text: str) -> bool:
    """Return whether a text is bytes and `??`, parted by blanks, with enough fixed bytes to be searched for."""
    words = text.split()
    fixed = sum(word != "??" for word in words)
    return fixed >= _FEWEST_FIXED and all(_WORD.fullmatch(word) for word in words)


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Turn a pattern into an expression over bytes.

    Raises:
        ValueError: if it is no pattern.
    """
    if not is_pattern(text):
        raise ValueError(f"expected bytes such as '48 8B 05 ?? ??', found {text!r}")
    parts = (b"." if word == "??" else re.escape(bytes.fromhex(word)) for word in text.split())
    return re.compile(b"".join(parts), re.DOTALL)
