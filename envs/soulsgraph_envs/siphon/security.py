"""Who may talk to a Siphon server: addresses, the token and its file."""

from __future__ import annotations

import os
import secrets
import stat
from ipaddress import ip_address
from pathlib import Path

from soulsgraph_envs.errors import GameError

#: Metadata key of the token.
TOKEN_KEY = "authorization"
_PRIVATE = 0o600


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, an IPv6 host in brackets.

    Raises:
        GameError: if it is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise GameError(
            f"Siphon: expected an address as HOST:PORT, found {address!r}; Siphon's own is localhost:50051."
        )
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine and can be reached from nowhere else."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path) -> str:
    """Read a token; the file must be its owner's alone.

    Raises:
        GameError: if it cannot be read, is empty, or others may read it.
    """
    try:
        mode, token = stat.S_IMODE(path.stat().st_mode), path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GameError(f"{path}: expected a readable token file, found {error}; copy the server's there.") from error
    if os.name == "posix" and mode & 0o077:
        raise GameError(f"{path}: expected mode 600, found {mode:o}: others may read it; do: chmod 600 {path}")
    if not token:
        raise GameError(f"{path}: expected a token, found an empty file; delete it, and the server makes a new one.")
    return token


def read_or_create_token(path: Path) -> str:
    """Read a token, or make one in a new file of mode 600.

    Raises:
        GameError: as `read_token`; also if the file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    except FileExistsError:
        return read_token(path)
    except OSError as error:
        raise GameError(f"{path}: expected to make a token file there, found {error}; choose another place.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    return read_token(path)


def bearer(token: str) -> str:
    """Return the metadata's value that shows a token."""
    return f"Bearer {token}"


def token_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that a call carries to show its token; nothing for no token."""
    return ((TOKEN_KEY, bearer(token)),) if token else ()
