"""Make the head's certificate, and the small certificate authority (CA) that signs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from soulsgraph_clusters.fleet.protocol.security import check_authority, key_pem, read_pair, write_file
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_envs.core.access import PRIVATE
from soulsgraph_envs.core.errors import shown
from soulsgraph_envs.core.files import locked

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
        key = generate_private_key(SECP256R1())
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


def _authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey, bool]:
    """Read the folder's CA and its key, or make them; return whether they are new."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        return *_new_authority(folder), True
    remedy = "restore it, or delete ca.pem and ca.key for a new CA, which every PC then needs a copy of"
    (authority, *_), private = read_pair(certificate, key, remedy)
    check_authority(certificate, authority, remedy)
    if not isinstance(private, EllipticCurvePrivateKey):
        raise FleetError(f"{key}: expected a key of an elliptic curve, found another; {remedy}.")
    return authority, private, False


def _new_authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    key = generate_private_key(SECP256R1())
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
    name: str, public: EllipticCurvePublicKey, issuer: x509.Name, issuers: EllipticCurvePublicKey, ends: datetime
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
    folder: Path, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    write_file(paths[1], key_pem(key), PRIVATE)
    write_file(paths[0], certificate.public_bytes(Encoding.PEM), 0o644)
    return paths
