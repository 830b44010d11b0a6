from __future__ import annotations

from pathlib import Path

import pytest

from soulsgraph_envs.core.access import is_loopback, new_token, read_private, read_token
from soulsgraph_envs.core.errors import GameError, SoulsGraphError


def private(path: Path, content: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(content)
    return path


def test_a_token_has_256_bits_and_never_comes_twice() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    # Base64 has six bits a character.
    assert min(map(len, tokens)) * 6 >= 256
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens)


def test_a_token_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    assert read_token(private(tmp_path / "token", b" secret\r\n")) == "secret"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\n", "expected one token, found an empty file"),
        (b"two words", "expected one token, found 2 words"),
        ("schlüssel".encode(), "found: other characters than ASCII"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    with pytest.raises(GameError, match=expected):
        read_token(private(tmp_path / "token", content), GameError)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_have_access_to_is_refused(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "a token", b"secret")
    path.chmod(mode)
    with pytest.raises(SoulsGraphError, match=f"found {mode:o}: others may read it; do: chmod 600 '.*a token'"):
        read_private(path, "token file", "copy it")
    path.chmod(0o400)
    assert read_private(path, "token file", "copy it") == "secret"


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SoulsGraphError, match=r"none: expected a readable key, found: No such .*; copy it\.$"):
        read_private(tmp_path / "none", "key", "copy it")


def test_the_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.5", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "[::]", "10.0.0.7", "pc", "localhost.pc", "")))
