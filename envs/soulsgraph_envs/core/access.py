"""Addresses: how they are written, and which of them only this machine reaches."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

#: Options of every gRPC channel: who names a game or a head means that one, and no proxy for the web in between.
NO_PROXY = [("grpc.enable_http_proxy", 0)]


def split_address(address: str, least_port: int = 0) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; of an IPv6 address, `[::1]:7443`, the host is without its brackets.

    Raises:
        ValueError: if it is none.
    """
    parts = urlsplit(f"//{address.strip()}")
    # An IPv6 address without brackets may end in what looks like a port, and gRPC takes it all for the host.
    if not parts.hostname or parts.port is None or parts.port < least_port:
        raise ValueError(f"no HOST:PORT, or a port that is not from {least_port} to 65535")
    return parts.hostname, parts.port


def family_of(host: str) -> socket.AddressFamily:
    """Return by which protocol a host's socket is, an IPv6 address without its brackets."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def plain_host(host: str) -> str:
    """Return an address in its one shortest form, an IPv4 address that came by IPv6 as itself; names as they are."""
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_loopback(host: str) -> bool:
    """Return whether a host, an IPv6 address in brackets or not, is this machine and reached from nowhere else."""
    try:
        return ip_address(plain_host(host)).is_loopback
    except ValueError:
        return host.lower() == "localhost"
