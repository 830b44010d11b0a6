"""Which clients are connected to a port of this machine, as the kernel tells."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_WORD = 4


def connected_clients(port: int) -> frozenset[str]:
    """Give (address, port) of every client that has a connection to a local port, spelt as by `client_name`."""
    found = set()
    for table in _TABLES:
        lines = table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []
        for line in lines:
            _, local, remote, state = line.split()[:4]
            if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
                host, _, remote_port = remote.rpartition(":")
                found.add(_spell(_address(host), int(remote_port, 16)))
    return frozenset(found)


def client_name(peer: str) -> str:
    """Spell a peer as gRPC names it, such as "ipv4:127.0.0.1:40122" or "ipv6:%5B::1%5D:40122"."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _spell(ip_address(host.strip("[]").partition("%")[0]), int(port))


def _spell(address: IPv4Address | IPv6Address, port: int) -> str:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return f"{mapped or address} {port}"


def _address(text: str) -> IPv4Address | IPv6Address:
    """Read an address of the kernel's table: 32-bit words in hexadecimal, each in this machine's byte order."""
    data = bytes.fromhex(text)
    words = [data[at : at + _WORD][::-1] for at in range(0, len(data), _WORD)]
    return ip_address(b"".join(words))
