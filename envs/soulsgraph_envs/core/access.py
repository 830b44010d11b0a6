"""Who may connect: secrets in files that only their owner reads, and addresses that only this machine reaches."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import stat
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from soulsgraph_envs.core.errors import SoulsGraphError

#: Mode of a file with a secret.
PRIVATE = 0o600
#: Metadata key of a token in a gRPC call.
TOKEN_KEY = "authorization"
_SCHEME = "Bearer "
#: Options of every gRPC channel: who names a game or a head means that one, and no proxy for the web in between.
NO_PROXY = [("grpc.enable_http_proxy", 0)]


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
    parts = urlsplit(f"//{address.strip()}")
    # An IPv6 address without brackets may end in what looks like a port, and gRPC takes it all for the host.
    if not parts.hostname or parts.port is None or parts.port < least_port:
        raise ValueError(f"no HOST:PORT, or a port that is not from {least_port} to 65535")
    return parts.hostname, parts.port


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
