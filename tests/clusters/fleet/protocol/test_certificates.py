"""The fleet's certificates: what they say, that a CA is kept, and that no file is ever half written."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from soulsgraph_clusters.fleet.protocol.security import (
    HEAD_DAYS,
    channel_credentials,
    credentials_of,
    ends_soon,
    key_pem,
    make_certificates,
    read_identity,
    write_file,
)
from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings
from soulsgraph_envs.core.files import WriteError

HOSTS = ("head.lan", "HEAD-2", "192.168.1.5", "fd00::5")
SETTINGS = FleetSettings(certificate="head.pem", key="head.key")


def certificate_of(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_heads_certificate_names_its_hosts_and_is_signed_by_the_ca(tmp_path):
    made = make_certificates(tmp_path, (*HOSTS, "[fd00::6]"))
    head, authority = certificate_of(made.certificate), certificate_of(made.ca)
    head.verify_directly_issued_by(authority)
    extensions = head.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["head.lan", "HEAD-2", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [*map(ip_address, (*HOSTS[2:], "fd00::6", "127.0.0.1", "::1"))]
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key = load_pem_private_key(made.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert head.public_key() == key.public_key()


def test_the_ca_signs_certificates_and_nothing_else(tmp_path):
    made = make_certificates(tmp_path, HOSTS)
    extensions = certificate_of(made.ca).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    issuer = certificate_of(made.certificate).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == own


def test_a_second_call_keeps_the_ca_and_replaces_the_heads(tmp_path):
    first = make_certificates(tmp_path, HOSTS)
    before = contents(tmp_path)
    second = make_certificates(tmp_path, ("other.lan",), days=10)
    after = contents(tmp_path)
    assert (first.new_ca, second.new_ca) == (True, False)
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca.key"}
    assert timedelta(days=9) < second.ends - datetime.now(UTC) <= timedelta(days=10)
    assert timedelta(days=HEAD_DAYS - 1) < first.ends - datetime.now(UTC) <= timedelta(days=HEAD_DAYS)


@pytest.mark.parametrize("lost", ["ca.pem", "ca.key"])
def test_half_a_ca_is_not_replaced(tmp_path, lost):
    make_certificates(tmp_path, HOSTS)
    (tmp_path / lost).unlink()
    before = contents(tmp_path)
    with pytest.raises(FleetError, match=lost):
        make_certificates(tmp_path, HOSTS)
    assert contents(tmp_path) == before


def test_the_heads_certificate_is_no_ca(tmp_path):
    made = make_certificates(tmp_path, HOSTS)
    made.certificate.replace(made.ca)
    made.key.replace(tmp_path / "ca.key")
    with pytest.raises(FleetError, match="CA"):
        make_certificates(tmp_path, HOSTS)


@pytest.mark.parametrize(
    ("hosts", "days"),
    [
        *(
            (("head.lan", host), 100)
            for host in ("", "head.lan:7443", "192.168.1.300", "*.lan", "a b", "-a", "a..b", "0.0.0.0", "::", "ü.lan")
        ),
        (("fe80::1%eth0",), 100),
        ((), 100),
        *((HOSTS, days) for days in (0, -1, 3651)),
    ],
)
def test_what_is_no_host_and_impossible_days_are_refused(tmp_path, hosts, days):
    with pytest.raises(FleetError):
        make_certificates(tmp_path, hosts, days)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    made = make_certificates(tmp_path, HOSTS)
    before = contents(tmp_path)
    made.key.unlink()
    made.key.mkdir()
    with pytest.raises(WriteError, match=r"head\.key"):
        make_certificates(tmp_path, HOSTS)
    made.key.rmdir()
    assert contents(tmp_path) == {name: content for name, content in before.items() if name != "head.key"}


def dated(folder, begins, ends):
    """Write a certificate of its own, valid between two times from now, as the head's and as a CA's."""
    key = ec.generate_private_key(ec.SECP256R1())
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "head")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    for who in ("head", "ca"):
        write_file(folder / f"{who}.pem", certificate.public_bytes(Encoding.PEM), 0o644)
        write_file(folder / f"{who}.key", key_pem(key), 0o600)


@pytest.mark.parametrize(("begins", "ends"), [(-20, -10), (10, 20)])
def test_a_certificate_that_is_not_valid_today_is_refused(tmp_path, begins, ends):
    dated(tmp_path, timedelta(begins), timedelta(ends))
    for use in (
        lambda: credentials_of(read_identity(SETTINGS, tmp_path)),
        lambda: channel_credentials(tmp_path / "ca.pem"),
        lambda: make_certificates(tmp_path, HOSTS),
    ):
        with pytest.raises(FleetError, match="today"):
            use()


def test_the_heads_certificate_ends_with_its_ca_at_the_latest(tmp_path):
    dated(tmp_path, timedelta(-1), timedelta(30))
    assert make_certificates(tmp_path, HOSTS).ends == certificate_of(tmp_path / "ca.pem").not_valid_after_utc


def test_a_key_with_a_password_is_refused(tmp_path):
    made = make_certificates(tmp_path, HOSTS)
    key = load_pem_private_key(made.key.read_bytes(), password=None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    write_file(made.key, locked, 0o600)
    with pytest.raises(FleetError, match=r"head\.key"):
        credentials_of(read_identity(SETTINGS, tmp_path))


def test_a_head_warns_of_a_certificate_that_ends_soon(tmp_path):
    settings = FleetSettings(certificate="head.pem", key="head.key")
    assert ends_soon(FleetSettings(), tmp_path) == ""
    for days, warns in ((31, False), (29, True), (1, True)):
        made = make_certificates(tmp_path, HOSTS, days)
        line = ends_soon(settings, tmp_path)
        assert bool(line) == warns
        assert not warns or f"ends on {made.ends:%Y-%m-%d}" in line
