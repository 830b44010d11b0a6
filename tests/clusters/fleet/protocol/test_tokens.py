"""A fleet's tokens and credentials: who gets in, over real connections, and what unusable files are refused by."""

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.protocol.certificates import (
    channel_credentials,
    credentials_of,
    make_certificate,
    read_identity,
)
from soulsgraph_clusters.fleet.protocol.settings import FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.tokens import (
    Tokens,
    read_token_file,
    sent_token,
    token_metadata,
    write_token_file,
)

SETTINGS = FleetSettings(certificate="head.pem", key="head.key")
HOSTS = ("localhost", "127.0.0.1")
CALL = "/test/Name"
CURVES = (ec.SECP256R1, ec.SECP384R1)
DAY = timedelta(days=1)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


class Names(grpc.GenericRpcHandler):
    """Answer every call with the name of its token."""

    def __init__(self, tokens):
        self.tokens = tokens

    def service(self, details):
        name, _ = self.tokens.holder_of(sent_token(details.invocation_metadata))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: (name or "nobody").encode())


@contextmanager
def served(tokens, credentials, host="127.0.0.1"):
    """Serve names on the loopback; yield the port."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Names(tokens)])
    try:
        if credentials is None:
            port = server.add_insecure_port(f"{host}:0")
        else:
            port = server.add_secure_port(f"{host}:0", credentials)
        server.start()
        yield port
    finally:
        server.stop(None).wait(PATIENCE_S)


def ask(address, credentials, token=None):
    """Return whom the server takes the token's holder for, or the name of the error."""
    channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    metadata = None if token is None else token_metadata(token)
    with channel:
        try:
            return channel.unary_unary(CALL)(b"", timeout=PATIENCE_S, metadata=metadata).decode()
        except grpc.RpcError as error:
            return error.code().name


def test_only_who_trusts_the_heads_certificate_connects_and_only_a_token_has_a_name(tmp_path):
    make_certificate(tmp_path, HOSTS)
    make_certificate(tmp_path / "other", HOSTS)
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.issue("pc-1")
    with served(tokens, credentials_of(read_identity(SETTINGS, tmp_path))) as port:
        trusting = channel_credentials(tmp_path / "head.pem")
        for host in HOSTS:
            assert ask(f"{host}:{port}", trusting, token) == "pc-1"
        assert ask(f"127.0.0.1:{port}", trusting) == "nobody"
        assert ask(f"127.0.0.1:{port}", trusting, token + "x") == "nobody"
        assert ask(f"127.0.0.1:{port}", channel_credentials(tmp_path / "other" / "head.pem"), token) == "UNAVAILABLE"
        assert ask(f"127.0.0.1:{port}", channel_credentials(None), token) == "UNAVAILABLE"


def _certified(folder, key, ca=None):
    """Write a key and its certificate into a folder, signed by a CA or by itself; return it with its key."""
    now, owner = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
    signer, signing_key = (ca[0].subject, ca[1]) if ca else (owner, key)
    certificate = (
        x509.CertificateBuilder(signer, owner, key.public_key(), x509.random_serial_number(), now, now + DAY)
        .add_extension(x509.BasicConstraints(ca is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signing_key, None if isinstance(signing_key, Ed25519PrivateKey) else SHA256())
    )
    folder.mkdir()
    private(folder / "head.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "head.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    return certificate, key


@pytest.mark.parametrize(
    "make_key",
    [partial(rsa.generate_private_key, 65537, 2048), *(partial(ec.generate_private_key, one()) for one in CURVES)],
)
def test_a_head_may_have_a_certificate_of_a_users_own_ca(tmp_path, make_key):
    ca = _certified(tmp_path / "ca", ec.generate_private_key(ec.SECP256R1()))
    _certified(tmp_path / "head", make_key(), ca)
    with served(Tokens(tmp_path / "tokens.json"), credentials_of(read_identity(SETTINGS, tmp_path / "head"))) as port:
        assert ask(f"localhost:{port}", channel_credentials(tmp_path / "ca" / "head.pem")) == "nobody"


@pytest.mark.parametrize("make_key", [Ed25519PrivateKey.generate, partial(ec.generate_private_key, ec.SECP521R1())])
def test_a_key_that_no_pc_could_connect_to_is_refused(tmp_path, make_key):
    _certified(tmp_path / "head", make_key())
    with pytest.raises(FleetError, match=r"head\.pem: "):
        read_identity(SETTINGS, tmp_path / "head")


def test_a_running_head_sees_what_another_process_issued_and_revoked(tmp_path):
    running, other = Tokens(tmp_path / "tokens.json"), Tokens(tmp_path / "tokens.json")
    assert running.known == {}
    first, second = other.issue("pc-1"), other.issue("pc-2")
    assert [*running.known] == ["pc-1", "pc-2"]
    assert [running.holder_of(token) for token in (first, second)] == [("pc-1", False), ("pc-2", False)]
    other.drain("pc-1", True)
    newer = other.issue("pc-1")
    # Another token does not let a drained PC play.
    assert [running.holder_of(token) for token in (first, newer)] == [("", False), ("pc-1", True)]
    assert [one.drained for one in running.known.values()] == [True, False]
    other.drain("pc-1", False)
    assert not running.known["pc-1"].drained
    other.revoke("pc-1")
    assert [*running.known] == ["pc-2"]
    assert [running.holder_of(token) for token in (newer, second)] == [("", False), ("pc-2", False)]
    for act in (other.revoke, lambda pc: other.drain(pc, True)):
        with pytest.raises(FleetError, match="pc-1"):
            act("pc-1")


def test_the_head_keeps_no_token_and_every_secret_has_mode_600(tmp_path):
    make_certificate(tmp_path, HOSTS)
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.issue("pc-1")
    write_token_file(tmp_path / "pc-1.token", token)
    assert read_token_file(tmp_path / "pc-1.token") == token
    assert token not in tokens.path.read_text()
    assert {mode(path) for path in (tokens.path, tmp_path / "pc-1.token", tmp_path / "head.key")} == {0o600}
    assert mode(tmp_path / "head.pem") == 0o644


def private(path, content):
    path.touch(0o600)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", [b"\n", b"two words", "schlüssel".encode()])
def test_what_is_no_token_is_refused(tmp_path, content):
    with pytest.raises(FleetError, match="token"):
        read_token_file(private(tmp_path / "token", content))


@pytest.mark.parametrize("sent", ["Basic abc", "abc", b"Bearer abc"])
def test_only_a_bearer_is_a_token(sent):
    assert sent_token([("other", "Bearer x"), ("authorization", sent)]) == ""


@pytest.mark.parametrize("name", ["", "pc 1", "pc/1", "..", "p" * 41, "pc\n"])
def test_a_pcs_name_is_a_plain_word(tmp_path, name):
    with pytest.raises(FleetError, match="PC"):
        Tokens(tmp_path / "tokens.json").issue(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"format": "soulsgraph tokens 2", "pcs": {}}',
        '{"format": "soulsgraph tokens 1"}',
        '{"format": "soulsgraph tokens 1", "pcs": {"pc": "x"}}',
        "schön",
    ],
)
def test_a_damaged_file_of_hashes_is_refused_for_every_question_and_left_alone(tmp_path, content):
    path = tmp_path / "tokens.json"
    tokens = Tokens(path)
    token = tokens.issue("pc-1")
    path.write_text(content)
    questions = [
        lambda: Tokens(path),
        lambda: tokens.known,
        lambda: tokens.holder_of(token),
        lambda: tokens.issue("pc-2"),
        lambda: tokens.revoke("pc-1"),
        lambda: tokens.drain("pc-1", True),
    ]
    for question in questions:
        with pytest.raises(FleetError, match=f"^{path}: "):
            question()
    assert path.read_text() == content


@pytest.mark.parametrize("readable", ["tokens.json", "pc.token", "head.key"])
def test_a_secret_that_others_may_read_is_refused(tmp_path, readable):
    make_certificate(tmp_path, HOSTS)
    write_token_file(tmp_path / "pc.token", Tokens(tmp_path / "tokens.json").issue("pc"))
    (tmp_path / readable).chmod(0o644)
    uses = {
        "tokens.json": lambda: Tokens(tmp_path / "tokens.json"),
        "pc.token": lambda: read_token_file(tmp_path / "pc.token"),
        "head.key": lambda: credentials_of(read_identity(SETTINGS, tmp_path)),
    }
    with pytest.raises(FleetError, match=readable):
        uses[readable]()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"key": "other/head.key"}, "other/head.key"),
        ({"key": "tokens.json"}, "tokens.json"),
        ({"certificate": "none.pem"}, "none.pem"),
        ({"certificate": "head.key"}, "head.key"),
    ],
)
def test_unusable_certificates_are_refused_before_anything_listens(tmp_path, changed, named):
    make_certificate(tmp_path, HOSTS)
    make_certificate(tmp_path / "other", HOSTS)
    Tokens(tmp_path / "tokens.json").issue("pc")
    with pytest.raises(FleetError, match=f"{named}: "):
        credentials_of(read_identity(replace(SETTINGS, **changed), tmp_path))


@pytest.mark.parametrize("wrong", ["head.key", "none.pem"])
def test_a_pc_trusts_nothing_but_a_certificate(tmp_path, wrong):
    make_certificate(tmp_path, HOSTS)
    with pytest.raises(FleetError, match=f"{wrong}: "):
        channel_credentials(tmp_path / wrong)
