"""Who may play in a fleet: one token for each PC, of which the head keeps the hash."""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from soulsgraph_clusters.fleet.protocol.settings import FleetError, check_name
from soulsgraph_envs.core.config import Where, parse, to_json, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import locked, whole_file

#: Mode of a file with a secret.
PRIVATE = 0o600
#: Metadata of a call's token: its key, and what is before the token.
_TOKEN_KEY, BEARER = "authorization", "Bearer "


@dataclass(frozen=True)
class IssuedToken:
    """What the head keeps of a PC's token: its SHA-256, random enough to need no salt; one drained plays no longer."""

    sha256: str
    drained: bool = False


@dataclass(frozen=True)
class _TokenFile:
    """The head's file of tokens, by PC."""

    pcs: Mapping[str, IssuedToken]
    format: Literal["soulsgraph tokens 1"] = "soulsgraph tokens 1"


def new_token() -> str:
    """Return an unguessable token: 256 random bits, in characters that a file name or a header may have."""
    return secrets.token_urlsafe(32)


class Tokens:
    """The PCs' tokens, of which the head's file has only the hashes, and which PCs are drained.

    Every question reads the file, so a running head notices at once what another process changed.
    A missing file has no tokens.

    Raises:
        FleetError: if the file is damaged, or others may read it; every method raises it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _ = self.known  # Which says what is wrong with the file.

    def issue(self, name: str, token: str = "") -> str:
        """Make a PC's token if it is not there yet, store its hash in place of an older one's, and return it.

        Raises:
            WriteError: if the file cannot be written.
        """
        check_name(name)
        token = token or new_token()
        with locked(self.path.parent):
            known = self.known
            before = known.get(name, IssuedToken(""))
            self._write({**known, name: replace(before, sha256=token_hash(token))})
        return token

    def revoke(self, name: str) -> None:
        """Forget a PC's token; raises as `drain`."""
        with locked(self.path.parent):
            self._write({other: one for other, one in self._with(name).items() if other != name})

    def drain(self, name: str, drained: bool) -> None:
        """Let a PC play no longer, or again.

        Raises:
            FleetError: if the PC has no token.
            WriteError: if the file cannot be written.
        """
        with locked(self.path.parent):
            known = self._with(name)
            self._write({**known, name: replace(known[name], drained=drained)})

    def holder_of(self, token: str) -> tuple[str, bool]:
        """Return the PC whose token this is, empty if nobody's, and whether it is drained.

        No hash can be guessed from how long it takes.
        """
        given, found = token_hash(token), ("", False)
        for name, one in self.known.items():
            if hmac.compare_digest(given, one.sha256):
                found = name, one.drained
        return found

    @property
    def known(self) -> dict[str, IssuedToken]:
        """What is known of each PC's token."""
        where = Where(self.path, remedy="restore the file, or delete it and issue every PC's token anew")
        try:
            text = read_private(self.path, "file of tokens' hashes", where.remedy)
        except FleetError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        try:
            return dict(validate(_TokenFile, parse(text, "JSON", where), where).pcs)
        except SoulsGraphError as error:
            raise FleetError(str(error)) from error

    def _with(self, name: str) -> dict[str, IssuedToken]:
        known = self.known
        if name not in known:
            found = f"expected a PC with a token ({', '.join(known) or 'none'}), found {shown(name)}"
            raise FleetError(f"{self.path}: {found}; correct the name.")
        return known

    def _write(self, known: Mapping[str, IssuedToken]) -> None:
        write_file(self.path, f"{to_json(to_table(_TokenFile(known)), indent=2)}\n".encode(), PRIVATE)


def token_hash(token: str) -> str:
    """Return the hash by which a token is known, whatever text a stranger sent."""
    return sha256(token.encode(errors="backslashreplace")).hexdigest()


def read_token_file(path: Path) -> str:
    """Read a PC's token.

    Raises:
        FleetError: if it cannot be read, is not one word, or others may read it.
    """
    words = read_private(path, "token file", "copy it from where it was made").split()
    if len(words) != 1:
        found = f"{len(words)} words" if words else "an empty file"
        raise FleetError(f"{path}: expected one token, found {found}; delete the file, and make or copy another.")
    return words[0]


def read_private(path: Path, what: str, remedy: str) -> str:
    """Read the ASCII text of a file that only its owner may have access to.

    Raises:
        FleetError: if it cannot be read, or others may read it.
    """
    try:
        with path.open(encoding="ascii") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "other characters than ASCII"
        raise FleetError(f"{path}: expected a readable {what}, found: {found}; {remedy}.") from error
    # Windows has no such modes.
    if os.name == "posix" and mode & 0o077:
        change = f"chmod 600 {shlex.quote(str(path))}"
        raise FleetError(f"{path}: expected mode 600, found {mode:o}: others may read it; do: {change}")
    return text


def write_token_file(path: Path, token: str, replace: bool = True) -> None:
    """Write a PC's token into a file of mode 600.

    Raises:
        WriteError: if it cannot be written, or is there already and not to be replaced.
    """
    write_file(path, f"{token}\n".encode(), PRIVATE, replace)


def token_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata by which a call carries a token."""
    return ((_TOKEN_KEY, BEARER + token),)


def sent_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token that a call's metadata carry, empty if none."""
    sent = next((value for key, value in metadata if key == _TOKEN_KEY), "")
    return sent.removeprefix(BEARER) if isinstance(sent, str) and sent.startswith(BEARER) else ""


def write_file(path: Path, content: bytes, mode: int, replace: bool = True) -> None:
    """Write a file whole or not at all; at no time it has a wider mode.

    Raises:
        WriteError: if it cannot be written.
    """
    with whole_file(path, replace) as temporary:
        temporary.touch(mode)
        temporary.write_bytes(content)
