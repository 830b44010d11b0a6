"""Who may connect: secrets in files that only their owner reads, and addresses that only this machine reaches."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import stat
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from soulsgraph_envs.core.errors import SoulsGraphError

#: Mode of a file with a secret.
PRIVATE = 0o600
#: Metadata key of a token in a gRPC call.
TOKEN_KEY = "authorization"
_SCHEME = "Bearer "


def new_token() -> str:
    """Return an unguessable token: 256 random bits, in characters that a file name or a header may have."""
    return secrets.token_urlsafe(32)


def bearer(token: str) -> str:
    """Return the metadata value of a token."""
    return _SCHEME + token


def read_token(path: Path, kind: type[SoulsGraphError] = SoulsGraphError) -> str:
    """Read a token; only the file's owner may have access to it.

    Raises:
        SoulsGraphError: of the `kind`, if it cannot be read, is not one word, or others may read it.
    """
    words = read_private(path, "token file", "copy it from where it was made", kind).split()
    if len(words) != 1:
        found = f"{len(words)} words" if words else "an empty file"
        raise kind(f"{path}: expected one token, found {found}; delete the file, and make or copy another.")
    return words[0]


def read_private(path: Path, what: str, remedy: str, kind: type[SoulsGraphError] = SoulsGraphError) -> str:
    """Read the ASCII text of a file that only its owner may have access to.

    Raises:
        SoulsGraphError: of the `kind`, if it cannot be read, or others may read it.
    """
    try:
        with path.open(encoding="ascii") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "other characters than ASCII"
        raise kind(f"{path}: expected a readable {what}, found: {found}; {remedy}.") from error
    # Windows has no such modes.
    if os.name == "posix" and mode & 0o077:
        change = f"chmod 600 {shlex.quote(str(path))}"
        raise kind(f"{path}: expected mode 600, found {mode:o}: others may read it; do: {change}")
    return text


def split_address(address: str, least_port: int = 0) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; of an IPv6 address, `[::1]:7443`, the host is without its brackets.

    Raises:
        ValueError: if it is none.
    """
    host, separator, port = address.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not separator or not bare or not (port.isascii() and port.isdecimal()) or not least_port <= int(port) < 65536:
        raise ValueError(f"no HOST:PORT, or a port that is not from {least_port} to 65535")
    if host != bare and host != f"[{bare}]":
        raise ValueError("half of the brackets around a host")
    if host != bare:
        IPv6Address(bare)
    elif ":" in bare:
        # It may end in what looks like a port, and gRPC takes it all for the host.
        raise ValueError("an IPv6 address without brackets")
    return bare, int(port)


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT as `split_address` reads it, an IPv6 address in brackets."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


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


#: Set to 1, addresses beyond this machine are reached by the proxy that the environment names.
USE_PROXY = "SOULSGRAPH_USE_PROXY"


def uses_proxy(address: str) -> bool:
    """Return whether the environment's proxies are asked for an address, HOST:PORT; never for this machine's.

    Who names a game or a head means that one: a proxy for the web would only be in the way.
    """
    host = address.rpartition(":")[0] or address
    return os.environ.get(USE_PROXY, "").lower() in ("1", "true") and not is_loopback(host)


def channel_options(address: str) -> list[tuple[str, int]]:
    """Return the options of a gRPC channel to an address by which it uses no proxy unless asked."""
    return [("grpc.enable_http_proxy", int(uses_proxy(address)))]


def by_proxy(address: str) -> str:
    """Return a phrase that names the proxy by which gRPC reaches an address; empty where there is none."""
    host, proxies = (address.rpartition(":")[0] or address).strip("[]"), getproxies()
    if not uses_proxy(address) or proxy_bypass(host):
        return ""
    found = next((proxies[kind] for kind in ("grpc", "https", "http") if kind in proxies), "")
    # A proxy's address may hold a password.
    place = urlsplit(found if "//" in found else f"//{found}").netloc.rpartition("@")[2]
    return f" by the proxy {place}" if place else ""
