"""Who may play in a fleet: one token for each PC, of which the head keeps the hash, and TLS by our own small CA."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings, check_name, split_address
from soulsgraph_envs.core.access import PRIVATE, TOKEN_KEY, bearer, new_token, plain_host, read_private, read_token
from soulsgraph_envs.core.config import Between, Where, parse, read_table, to_json, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import locked, whole_file

_VERSION = 1
_HASH = re.compile(r"[0-9a-f]{64}")
#: What a gateway proves by that it is the head's: a private key and its certificates, as PEM.
Identity = tuple[bytes, bytes]

#: A certificate that ends within so long is to be made anew.
ENDS_SOON = timedelta(days=30)


@dataclass(frozen=True)
class _Hashes:
    """The file of hashes: SHA-256 of each PC's token, which is random enough to need no salt."""

    format: Literal["soulsgraph tokens"] = "soulsgraph tokens"
    version: Annotated[int, Between(_VERSION, _VERSION)] = _VERSION
    tokens: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, digest in self.tokens.items():
            if not _HASH.fullmatch(digest):
                raise FleetError(f"expected the hash of {shown(name)}'s token, found another text; issue it anew.")
            check_name(name)


class Tokens:
    """The PCs' tokens, of which the head's file has only the hashes.

    Every question reads the file, so a running head notices at once what another process issued or revoked.
    A missing file has no tokens.

    Raises:
        FleetError: if the file is damaged, or others may read it; every method raises it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read()

    @property
    def names(self) -> tuple[str, ...]:
        """The PCs that have a token."""
        return tuple(self._read())

    def issue(self, name: str, token: str = "") -> str:
        """Make a PC's token if it is not there yet, store its hash in place of an older one's, and return it.

        Raises:
            WriteError: if the file cannot be written.
        """
        check_name(name)
        token = token or new_token()
        with locked(self.path.parent):
            self._write({**self._read(), name: _hash(token)})
        return token

    def revoke(self, name: str) -> None:
        """Forget a PC's token.

        Raises:
            FleetError: if the PC has none.
            WriteError: if the file cannot be written.
        """
        with locked(self.path.parent):
            left = self._read()
            if left.pop(name, None) is None:
                known = ", ".join(left) or "none"
                raise FleetError(
                    f"{self.path}: expected a PC with a token ({known}), found {shown(name)}; correct the name."
                )
            self._write(left)

    @property
    def stamp(self) -> tuple[int, int]:
        """A mark of the file that changes whenever it is written."""
        try:
            found = self.path.stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

    def issued(self, tokens: Iterable[str]) -> set[str]:
        """Return those of the tokens that are valid now; the file is read once for all of them."""
        digests = set(self._read().values())
        return {token for token in tokens if _hash(token) in digests}

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each PC's token."""
        return self._read()

    def replace(self, hashes: Mapping[str, str]) -> None:
        """Let these tokens hold, and no others; raises WriteError if the file cannot be written."""
        with locked(self.path.parent):
            self._write(hashes)

    def name_of(self, token: str) -> str | None:
        """Return the PC whose token this is, if any; no hash can be guessed from how long it takes."""
        given, found = _hash(token), None
        for name, digest in self._read().items():
            if hmac.compare_digest(given, digest):
                found = name
        return found

    def _read(self) -> dict[str, str]:
        where = Where(self.path, remedy="restore the file, or delete it and issue every PC's token anew", saved=True)
        try:
            text = read_private(self.path, "file of tokens' hashes", where.remedy, FleetError)
        except FleetError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        try:
            return dict(read_table(_Hashes, parse(text, "JSON", where), where).tokens)
        except SoulsGraphError as error:
            raise FleetError(str(error)) from error

    def _write(self, tokens: Mapping[str, str]) -> None:
        text = to_json(to_table(_Hashes(tokens=tokens)), indent=2)
        write_file(self.path, f"{text}\n".encode(), PRIVATE)


def _hash(token: str) -> str:
    # A stranger may send any text.
    return sha256(token.encode(errors="backslashreplace")).hexdigest()


def read_token_file(path: Path) -> str:
    """Read a PC's token.

    Raises:
        FleetError: if it cannot be read, is not one word, or others may read it.
    """
    return read_token(path, FleetError)


def write_token_file(path: Path, token: str, replace: bool = True) -> None:
    """Write a PC's token into a file of mode 600.

    Raises:
        WriteError: if it cannot be written, or is there already and not to be replaced.
    """
    write_file(path, f"{token}\n".encode(), PRIVATE, replace)


def token_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata by which a call carries a token."""
    return ((TOKEN_KEY, bearer(token)),)


def sent_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token that a call's metadata carry, empty if none."""
    sent = next((value for key, value in metadata if key == TOKEN_KEY), "")
    return sent.removeprefix(bearer("")) if isinstance(sent, str) and sent.startswith(bearer("")) else ""


def write_file(path: Path, content: bytes, mode: int, replace: bool = True) -> None:
    """Write a file whole or not at all; at no time it has a wider mode.

    Raises:
        WriteError: if it cannot be written.
    """
    with whole_file(path, replace) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def key_pem(key: Any) -> bytes:
    """Return a private key as PEM, without a password, which gRPC could not ask for."""
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def server_credentials(settings: FleetSettings, folder: Path) -> Any | None:
    """Return the head's gRPC credentials; None without a certificate. Raises as `read_identity`."""
    return credentials_of(read_identity(settings, folder))


def credentials_of(identity: Identity | None) -> Any | None:
    """Return gRPC credentials of a key and its certificates; None without them."""
    return None if identity is None else grpc.ssl_server_credentials([identity])


def read_identity(settings: FleetSettings, folder: Path, addresses: Iterable[str] = ()) -> Identity | None:
    """Read the head's key and certificates, from paths relative to a folder; None without a certificate.

    Raises:
        FleetError: if the certificate or its key cannot be read, they do not belong together, others may read the
            key, the certificate is not valid today, or does not hold for the host of one of the `addresses`.
    """
    if not settings.certificate:
        return None
    remedy = "make the head's certificate and key anew"
    chain, key = read_pair(folder / settings.certificate, folder / settings.key, remedy)
    known = certified_hosts(chain[0])
    for host in (split_address(address)[0] for address in addresses):
        if plain_host(host) not in known:
            raise FleetError(
                f"{folder / settings.certificate}: expected a certificate that holds for {host}, where a gateway "
                f"listens, found one of {', '.join(known) or 'no host'}; {remedy}, for every address of the file."
            )
    return key_pem(key), _certificates_pem(chain)


def ends_soon(settings: FleetSettings, folder: Path) -> str:
    """Return a warning, in one line, where the head's certificate ends within `ENDS_SOON`; empty where it lasts.

    Raises:
        FleetError: as `read_identity`.
    """
    if not settings.certificate:
        return ""
    path, remedy = folder / settings.certificate, "make the head's certificate and key anew"
    ends = _read_certificates(path, remedy)[0].not_valid_after_utc
    if ends - datetime.now(UTC) >= ENDS_SOON:
        return ""
    return f"{path}: the head's certificate ends on {ends:%Y-%m-%d}, and no PC connects from then on; {remedy}"


def certified_hosts(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses by which PCs may dial the certificate's owner."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def channel_credentials(ca: Path | None) -> Any | None:
    """Return a PC's gRPC credentials, which trust the fleet's CA alone; None without its certificate.

    Raises:
        FleetError: if it cannot be read, is not a CA's, or is not valid today.
    """
    if ca is None:
        return None
    remedy = "copy the head's ca.pem there"
    chain = _read_certificates(ca, remedy)
    check_authority(ca, chain[0], remedy)
    return grpc.ssl_channel_credentials(_certificates_pem(chain))


def _certificates_pem(chain: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in chain)


def check_authority(path: Path, certificate: x509.Certificate, remedy: str) -> None:
    """Refuse a certificate that is no CA's, as the head's own.

    Raises:
        FleetError: if it is none.
    """
    try:
        signs = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        signs = False
    if not signs:
        raise FleetError(f"{path}: expected the certificate of a CA, found another; {remedy}.")


def read_pair(certificate: Path, key: Path, remedy: str) -> tuple[list[x509.Certificate], Any]:
    """Read certificates, and the key of the first of them.

    Raises:
        FleetError: if one cannot be read, they do not belong together, others may read the key, or the certificate is
            not valid today.
    """
    chain, pem = _read_certificates(certificate, remedy), read_private(key, "private key", remedy, FleetError)
    try:
        private = load_pem_private_key(pem.encode(), password=None)
        fits = private.public_key() == chain[0].public_key()
    # A key with a password is a TypeError.
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FleetError(f"{key}: expected a private key as PEM, without a password, found none; {remedy}.") from error
    if not fits:
        raise FleetError(f"{key}: expected the key of {certificate}, found another one's; {remedy}.")
    return chain, private


def _read_certificates(path: Path, remedy: str) -> list[x509.Certificate]:
    """Read certificates, the first of which must be valid today."""
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else "none"
        raise FleetError(f"{path}: expected a certificate as PEM, found: {found}; {remedy}.") from error
    begins, today, ends = chain[0].not_valid_before_utc, datetime.now(UTC), chain[0].not_valid_after_utc
    if not begins <= today <= ends:
        raise FleetError(
            f"{path}: expected a certificate that is valid today, {today:%Y-%m-%d}, found one that is from "
            f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d}; {remedy}, or correct this machine's clock."
        )
    return chain
