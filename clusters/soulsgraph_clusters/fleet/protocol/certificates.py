"""TLS by the head's certificate: how certificates are read, and how the head's, which signs itself, is made."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.tokens import PRIVATE, read_private, write_file
from soulsgraph_envs.core.errors import shown
from soulsgraph_envs.core.files import locked

#: What a gateway proves by that it is the head's: a private key and its certificates, as PEM.
Identity = tuple[bytes, bytes]

#: A certificate that ends within so long is to be made anew.
ENDS_SOON = timedelta(days=30)


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
