"""Who may play in a fleet: one token for each PC, of which the head keeps the hash, and TLS by the head's certificate.

Tokens first, then how certificates are read, and how the head's, which signs itself, is made.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shlex
import ssl
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings, check_name
from soulsgraph_envs.core.config import Where, parse, to_json, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import locked, whole_file

#: Mode of a file with a secret.
PRIVATE = 0o600
#: Metadata of a call's token: its key, and what is before the token.
_TOKEN_KEY, BEARER = "authorization", "Bearer "
#: What a gateway proves by that it is the head's: a private key and its certificates, as PEM.
Identity = tuple[bytes, bytes]

#: A certificate that ends within so long is to be made anew.
ENDS_SOON = timedelta(days=30)


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


def credentials_of(identity: Identity | None) -> Any | None:
    """Return gRPC credentials of a key and its certificates; None without them."""
    return None if identity is None else grpc.ssl_server_credentials([identity])


_ANEW = "make the head's certificate and key anew"
#: The elliptic curves of keys that gRPC's TLS takes.
_CURVES = ("secp256r1", "secp384r1")


def read_identity(settings: FleetSettings, folder: Path) -> Identity | None:
    """Read the head's key and certificates, from paths relative to a folder; None without a certificate.

    Raises:
        FleetError: if the certificate or its key cannot be read, they do not belong together, others may read the
            key, gRPC's TLS has no use for its kind, or the certificate is not valid today.
    """
    if not settings.certificate:
        return None
    certificate, key = folder / settings.certificate, folder / settings.key
    public = read_certificate(certificate, _ANEW).public_key()
    curve = public.curve.name if isinstance(public, ec.EllipticCurvePublicKey) else ""
    if not isinstance(public, rsa.RSAPublicKey) and curve not in _CURVES:
        raise FleetError(
            f"{certificate}: expected a key of RSA, P-256 or P-384, found {curve or type(public).__name__}, by which "
            f"no PC could connect; {_ANEW}."
        )
    pem = read_private(key, "private key", _ANEW)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as error:
        expected = f"the key of {certificate} as PEM, without a password"
        raise FleetError(f"{key}: expected {expected}, found another; {_ANEW}.") from error
    return pem.encode(), certificate.read_bytes()


def certified_hosts(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses by which PCs may dial the certificate's owner."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def channel_credentials(ca: Path | None) -> Any | None:
    """Return a PC's gRPC credentials, which trust this certificate and those that it signed; None without one.

    Raises:
        FleetError: if it cannot be read, or is not valid today.
    """
    if ca is None:
        return None
    read_certificate(ca, "copy the head's head.pem there")
    return grpc.ssl_channel_credentials(ca.read_bytes())


def read_certificate(path: Path, remedy: str) -> x509.Certificate:
    """Read the first certificate of a file, which must be valid today.

    Raises:
        FleetError: if there is none, or it is not.
    """
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else "none"
        raise FleetError(f"{path}: expected a certificate as PEM, found: {found}; {remedy}.") from error
    begins, today, ends = certificate.not_valid_before_utc, datetime.now(UTC), certificate.not_valid_after_utc
    if not begins <= today <= ends:
        raise FleetError(
            f"{path}: expected a certificate that is valid today, {today:%Y-%m-%d}, found one that is from "
            f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d}; {remedy}, or correct this machine's clock."
        )
    return certificate


#: The files of the head's certificate and its key, and how long one that is made lasts.
CERTIFICATE, KEY = "head.pem", "head.key"
_LASTS = timedelta(days=3650)


def make_certificate(folder: Path, hosts: Sequence[str], lasts: timedelta = _LASTS) -> datetime:
    """Make the head's certificate, which signs itself, and its key, in a folder; return until when it can be used.

    `hosts` are the names and addresses that PCs dial. A PC needs a copy of the certificate. Each file is written whole
    or not at all.

    Raises:
        FleetError: for no hosts, or an invalid one.
        WriteError: if a file cannot be written.
    """
    if not hosts:
        raise FleetError("certificates: expected the names or addresses by which PCs reach the head, found none.")
    # The head itself reads its metrics by the loopback.
    names = [*dict.fromkeys(_general_name(host) for host in (*hosts, "localhost", "127.0.0.1", "::1"))]
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    public, name = key.public_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "soulsgraph head")])
    unused = "content_commitment key_encipherment data_encipherment key_agreement crl_sign encipher_only decipher_only"
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, **dict.fromkeys(unused.split(), False))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # The PCs' clocks may be behind.
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + lasts)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, SHA256())
    )
    with locked(folder):
        write_file(folder / KEY, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), PRIVATE)
        write_file(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM), 0o644)
    return certificate.not_valid_after_utc


#: Labels of a host's name, joined by dots.
_HOST = re.compile(r"(?:(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\.)*(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


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
