"""The head's certificate: what it says, that nothing else is trusted, and that no file is ever half written."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509

from soulsgraph_clusters.fleet.protocol.certificates import (
    CERTIFICATE,
    KEY,
    channel_credentials,
    credentials_of,
    make_certificate,
    read_identity,
)
from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings
from soulsgraph_envs.core.files import WriteError

HOSTS = ("head.lan", "HEAD-2", "192.168.1.5", "fd00::5")
SETTINGS = FleetSettings(certificate=CERTIFICATE, key=KEY)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_heads_certificate_names_its_hosts_and_lasts_ten_years(tmp_path):
    ends = make_certificate(tmp_path, (*HOSTS, "[fd00::6]"))
    head = x509.load_pem_x509_certificate((tmp_path / CERTIFICATE).read_bytes())
    head.verify_directly_issued_by(head)
    names = head.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["head.lan", "HEAD-2", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [*map(ip_address, (*HOSTS[2:], "fd00::6", "127.0.0.1", "::1"))]
    assert head.not_valid_after_utc == ends
    assert timedelta(3649) < ends - datetime.now(UTC) <= timedelta(3650)
    # The PCs' clocks may be behind.
    assert datetime.now(UTC) - head.not_valid_before_utc > timedelta(hours=23)


def test_strict_readers_take_the_certificate(tmp_path):
    make_certificate(tmp_path, ["localhost"])
    here, there = ssl.create_default_context(cafile=tmp_path / CERTIFICATE), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # As Python 3.13 reads by default.
    here.verify_flags |= ssl.VERIFY_X509_STRICT
    there.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    one, two, three, four = (ssl.MemoryBIO() for _ in range(4))
    client, server = here.wrap_bio(one, two, server_hostname="localhost"), there.wrap_bio(three, four, server_side=True)
    for end in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        three.write(two.read())
        one.write(four.read())
    assert client.version() == server.version() == "TLSv1.3"


def test_a_second_call_replaces_certificate_and_key(tmp_path):
    make_certificate(tmp_path, HOSTS)
    before = contents(tmp_path)
    make_certificate(tmp_path, ["other.lan"])
    after = contents(tmp_path)
    assert all(before[name] != after[name] for name in (CERTIFICATE, KEY))
    assert read_identity(SETTINGS, tmp_path) == (after[KEY], after[CERTIFICATE])


@pytest.mark.parametrize(
    "hosts",
    [
        *(("head.lan", host) for host in ("", "head.lan:7443", "192.168.1.300", "*.lan", "a..b", "0.0.0.0", "ü.lan")),
        ("fe80::1%eth0",),
        (),
    ],
)
def test_what_is_no_host_is_refused(tmp_path, hosts):
    with pytest.raises(FleetError):
        make_certificate(tmp_path, hosts)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    make_certificate(tmp_path, HOSTS)
    before = contents(tmp_path)
    (tmp_path / KEY).unlink()
    (tmp_path / KEY).mkdir()
    with pytest.raises(WriteError, match=KEY):
        make_certificate(tmp_path, HOSTS)
    (tmp_path / KEY).rmdir()
    assert contents(tmp_path) == {name: content for name, content in before.items() if name != KEY}


def test_a_certificate_that_is_over_is_refused(tmp_path):
    make_certificate(tmp_path, HOSTS, timedelta(hours=-1))
    for use in (
        lambda: credentials_of(read_identity(SETTINGS, tmp_path)),
        lambda: channel_credentials(tmp_path / CERTIFICATE),
    ):
        with pytest.raises(FleetError, match="today"):
            use()
