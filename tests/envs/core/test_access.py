from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.core.access import family_of, is_loopback, plain_host, split_address


def test_the_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.5", "::1", "[::1]", "localhost", "LocalHost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "[::]", "10.0.0.7", "pc", "localhost.pc", "")))


HOSTS = st.one_of(
    st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str), st.sampled_from(["localhost", "head.lan", "pc-1"])
)


@given(HOSTS, st.integers(0, 65535))
def test_an_address_is_read_as_it_is_written(host: str, port: int) -> None:
    written = f"[{host}]" if ":" in host else host
    assert split_address(f"{written}:{port}") == (host, port)
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
