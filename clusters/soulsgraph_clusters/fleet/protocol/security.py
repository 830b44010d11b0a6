"""Who may play in a fleet: one token for each PC, of which the head keeps the hash, and TLS by our own small CA.

Tokens first, then how certificates are read, and how the head's and the small certificate authority (CA) that signs it
are made.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings, check_name
from soulsgraph_envs.core.config import Between, Where, parse, to_json, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import locked, whole_file

#: Mode of a file with a secret.
PRIVATE = 0o600
#: Metadata of a call's token: its key, and what is before the token.
_TOKEN_KEY, BEARER = "authorization", "Bearer "
_VERSION = 1
_HASH = re.compile(r"[0-9a-f]{64}")
#: What a gateway proves by that it is the head's: a private key and its certificates, as PEM.
Identity = tuple[bytes, bytes]

#: A certificate that ends within so long is to be made anew.
ENDS_SOON = timedelta(days=30)


@dataclass(frozen=True)
class _Hashes:
    """The file of hashes: SHA-256 of each PC's token, which is random enough to need no salt."""

    tokens: Mapping[str, str]
    format: Literal["soulsgraph tokens"] = "soulsgraph tokens"
    version: Annotated[int, Between(_VERSION, _VERSION)] = _VERSION

    def __post_init__(self) -> None:
        for name, digest in self.tokens.items():
            if not _HASH.fullmatch(digest):
                raise FleetError(f"expected the hash of {shown(name)}'s token, found another text; issue it anew.")
            check_name(name)


def new_token() -> str:
    """Return an unguessable token: 256 random bits, in characters that a file name or a header may have."""
    return secrets.token_urlsafe(32)


class Tokens:
    """The PCs' tokens, of which the head's file has only the hashes.

    Every question reads the file, so a running head notices at once what another process issued or revoked.
    A missing file has no tokens.

    Raises:
        FleetError: if the file is damaged, or others may read it; every method raises it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _ = self.hashes  # Which says what is wrong with the file.

    @property
    def names(self) -> tuple[str, ...]:
        """The PCs that have a token."""
        return tuple(self.hashes)

    def issue(self, name: str, token: str = "") -> str:
        """Make a PC's token if it is not there yet, store its hash in place of an older one's, and return it.

        Raises:
            WriteError: if the file cannot be written.
        """
        check_name(name)
        token = token or new_token()
        with locked(self.path.parent):
            self._write({**self.hashes, name: _hash(token)})
        return token

    def revoke(self, name: str) -> None:
        """Forget a PC's token.

        Raises:
            FleetError: if the PC has none.
            WriteError: if the file cannot be written.
        """
        with locked(self.path.parent):
            left = self.hashes
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
        digests = set(self.hashes.values())
        return {token for token in tokens if _hash(token) in digests}

    def name_of(self, token: str) -> str | None:
        """Return the PC whose token this is, if any; no hash can be guessed from how long it takes."""
        given, found = _hash(token), None
        for name, digest in self.hashes.items():
            if hmac.compare_digest(given, digest):
                found = name
        return found

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each PC's token."""
        where = Where(self.path, remedy="restore the file, or delete it and issue every PC's token anew")
        try:
            text = read_private(self.path, "file of tokens' hashes", where.remedy)
        except FleetError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        try:
            return dict(validate(_Hashes, parse(text, "JSON", where), where).tokens)
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


def key_pem(key: Any) -> bytes:
    """Return a private key as PEM, without a password, which gRPC could not ask for."""
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def credentials_of(identity: Identity | None) -> Any | None:
    """Return gRPC credentials of a key and its certificates; None without them."""
    return None if identity is None else grpc.ssl_server_credentials([identity])


def read_identity(settings: FleetSettings, folder: Path) -> Identity | None:
    """Read the head's key and certificates, from paths relative to a folder; None without a certificate.

    Raises:
        FleetError: if the certificate or its key cannot be read, they do not belong together, others may read the
            key, or the certificate is not valid today.
    """
    if not settings.certificate:
        return None
    remedy = "make the head's certificate and key anew"
    chain, key = read_pair(folder / settings.certificate, folder / settings.key, remedy)
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
    chain, pem = _read_certificates(certificate, remedy), read_private(key, "private key", remedy)
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


#: Labels of a host's name, joined by dots.
_HOST = re.compile(r"(?:(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\.)*(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
#: How long a new CA lasts, and the head's certificate unless said otherwise.
_CA_DAYS, HEAD_DAYS = 3650, 825


@dataclass(frozen=True)
class Certificates:
    """What `make_certificates` wrote: PCs need a copy of `ca`; the head's certificate can be used until `ends`."""

    ca: Path
    certificate: Path
    key: Path
    ends: datetime
    new_ca: bool


def make_certificates(folder: Path, hosts: Sequence[str], days: int = HEAD_DAYS) -> Certificates:
    """Make the head's certificate and key for the names and addresses that PCs dial; the CA too if there is none.

    A CA that is there is kept, so that the PCs' copies of it stay valid. Each file is written whole or not at all.

    Raises:
        FleetError: for no hosts or an invalid one, a number of days out of range, or a CA that cannot be used.
        WriteError: if a file cannot be written.
    """
    # The head itself reads its metrics by the loopback.
    names = [*dict.fromkeys(_general_name(host) for host in (*hosts, "localhost", "127.0.0.1", "::1"))]
    if not hosts:
        raise FleetError("certificates: expected the names or addresses by which PCs reach the head, found none.")
    if not 1 <= days <= _CA_DAYS:
        raise FleetError(f"certificates: expected 1 to {_CA_DAYS} days, found {shown(days)}; correct it.")
    with locked(folder):
        authority, authority_key, is_new = _authority(folder)
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(datetime.now(UTC) + timedelta(days=days), authority.not_valid_after_utc)
        certificate = (
            _unsigned("soulsgraph head", key.public_key(), authority.subject, authority_key.public_key(), ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(authority_key, SHA256())
        )
        paths = _write_pair(folder, "head", certificate, key)
    return Certificates(folder / "ca.pem", *paths, certificate.not_valid_after_utc, is_new)


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey, bool]:
    """Read the folder's CA and its key, or make them; return whether they are new."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        return *_new_authority(folder), True
    remedy = "restore it, or delete ca.pem and ca.key for a new CA, which every PC then needs a copy of"
    (authority, *_), private = read_pair(certificate, key, remedy)
    check_authority(certificate, authority, remedy)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise FleetError(f"{key}: expected a key of an elliptic curve, found another; {remedy}.")
    return authority, private, False


def _new_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name, public = "soulsgraph CA", key.public_key()
    certificate = (
        _unsigned(name, public, _subject(name), public, datetime.now(UTC) + timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, SHA256())
    )
    _write_pair(folder, "ca", certificate, key)
    return certificate, key


def _unsigned(
    name: str, public: ec.EllipticCurvePublicKey, issuer: x509.Name, issuers: ec.EllipticCurvePublicKey, ends: datetime
) -> x509.CertificateBuilder:
    """Return what our two kinds of certificates have in common."""
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # The PCs' clocks may be behind.
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    """Return what a key is for: to sign certificates, or to prove that it is the head's."""
    unused = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, decipher_only=False, **unused
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    """Return a host's name or address as a certificate has it.

    Raises:
        FleetError: for what is neither, or no single machine's.
    """
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        if _HOST.fullmatch(host) and len(host) <= 253 and not host.rpartition(".")[2].isdecimal():
            return x509.DNSName(host)
    else:
        if not (address.is_unspecified or address.is_multicast or "%" in str(address)):
            return x509.IPAddress(address)
    raise FleetError(
        f"certificates: expected a name or address by which PCs reach the head, found {shown(host)}; "
        "write for example head.lan or 192.168.1.5, without a port."
    )


def _write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    write_file(paths[1], key_pem(key), PRIVATE)
    write_file(paths[0], certificate.public_bytes(Encoding.PEM), 0o644)
    return paths
