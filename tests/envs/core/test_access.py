from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.core.access import (
    family_of,
    is_loopback,
    join_address,
    new_token,
    plain_host,
    read_private,
    read_token,
    split_address,
)
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


@pytest.mark.parametrize("content", [b"\n", b"two words", "schlüssel".encode()])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(GameError, match="token"):
        read_token(private(tmp_path / "token", content), GameError)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_have_access_to_is_refused(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "a token", b"secret")
    path.chmod(mode)
    with pytest.raises(SoulsGraphError, match=f"{mode:o}"):
        read_private(path, "token file", "copy it")
    path.chmod(0o400)
    assert read_private(path, "token file", "copy it") == "secret"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SoulsGraphError, match="none"):
        read_private(tmp_path / "none", "key", "copy it")


def test_the_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.5", "::1", "[::1]", "localhost", "LocalHost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "[::]", "10.0.0.7", "pc", "localhost.pc", "")))


HOSTS = st.one_of(
    st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str), st.sampled_from(["localhost", "head.lan", "pc-1"])
)


@given(HOSTS, st.integers(0, 65535))
def test_an_address_is_read_as_it_is_written(host: str, port: int) -> None:
    assert split_address(join_address(host, port)) == (host, port)
    assert family_of(host) == (socket.AF_INET6 if ":" in host else socket.AF_INET)


@pytest.mark.parametrize(
    "address",
    [
        *("", ":1", "host", "host:", "host:x", "host:65536", "host:-1", "host:²"),
        *("::1", "::1:7443", "fd00::5:7443", "[::1]", "[::1]1", "[::1:1", "::1]:1"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_address(address)


def test_a_port_of_zero_is_no_address_where_one_is_asked_for() -> None:
    with pytest.raises(ValueError, match="1"):
        split_address("host:0", least_port=1)


def test_an_address_has_one_form() -> None:
    assert plain_host("[0:0::1]") == "::1"
    assert plain_host("::ffff:10.0.0.7") == "10.0.0.7"
    assert plain_host("head.lan") == "head.lan"
