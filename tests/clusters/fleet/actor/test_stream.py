"""How a game dials its head, and what a PC is told where none answers."""

import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fakes.fleet_here import GatewayHere, playing
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.actor import stream
from soulsgraph_clusters.fleet.actor.host import HostOptions
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.protocol.security import key_pem, make_certificates, read_pair, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.games.link import GameSettings

FAST = GameSettings(driver="simulator", speed=20.0, lanes=2)


@pytest.fixture
def here(tmp_path, lock_on_task):
    """A head on the loopback, with weights."""
    with GatewayHere(tmp_path / "head", lock_on_task) as here:
        here.publish()
        yield here


def test_what_was_reported_is_said_to_be_over_once_the_head_takes_the_game(here, tmp_path):
    token, lines = tmp_path / "token", []
    write_token_file(token, "0" * 64)
    with playing(Head(here.address, token), tmp_path / "spool", FAST, report=lines.append):
        until(lambda: any("token" in line for line in lines), "a refusal")
        token.unlink()
        write_token_file(token, here.tokens.issue("attic"))
        until(lambda: "playing" in lines, "play")
    assert lines.count("the head answers") == 1
    assert lines.index("the head answers") < lines.index("playing")


def test_a_head_that_does_not_answer_is_reported_once(here, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CONNECT_WITHIN_S", 0.2)
    address, tried, lines, connect = f"127.0.0.1:{free_port()}", [], [], stream.Stream._connect
    monkeypatch.setattr(stream.Stream, "_connect", lambda own: tried.append(1) or connect(own))
    with playing(Head(address, here.token_file()), tmp_path / "spool", FAST, report=lines.append):
        until(lambda: len(tried) > 2, "further attempts")
    (line,) = lines
    assert address in line


@pytest.mark.parametrize("head", ["127.0.0.1", "head", "127.0.0.1:70000", "10.0.0.3:7443"])
def test_an_address_has_a_host_and_a_port_and_one_of_another_machine_the_ca(tmp_path, head):
    with pytest.raises(FleetError, match="head"):
        HostOptions(head, tmp_path / "token", tmp_path / "games.toml")


def _issue(folder, hosts, begins_days=-1, ends_days=1):
    """Return the files of a certificate that the CA in a folder signs for these hosts and days alone."""
    make_certificates(folder, ["head.lan"])
    (authority, *_), authority_key = read_pair(folder / "ca.pem", folder / "ca.key", "")
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a head")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins_days))
        .not_valid_after(now + timedelta(days=ends_days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .sign(authority_key, SHA256())
    )
    name = f"{certificate.serial_number:x}"
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key_pem(key))
    return folder / f"{name}.pem", folder / f"{name}.key"


@contextmanager
def _listening(files=None):
    """Yield the port of a server on the loopback, by TLS with the files of a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files:
        context.load_cert_chain(*files)

    class Handler(BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                if files:
                    context.wrap_socket(self.request, server_side=True).close()
                else:
                    self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_each_reason_for_which_no_head_answers_has_a_line_of_its_own(tmp_path, monkeypatch):
    # Each step ends by itself, on a busy machine after longer than a person waits.
    monkeypatch.setattr(stream, "_STEP_WITHIN_S", PATIENCE_S)
    own, other = tmp_path / "own", tmp_path / "other"
    make_certificates(own, ["head.lan"])
    make_certificates(other, ["head.lan"])

    def why(address, ca=own / "ca.pem"):
        return stream.why_silent(Head(address, tmp_path / "token", ca=ca))

    found = {}
    for expected, files in {
        "another CA": _issue(other, ["localhost"]),
        "this address": _issue(own, ["head.lan"]),
        "expired": _issue(own, ["localhost"], -3, -2),
        "not valid yet": _issue(own, ["localhost"], 1, 2),
        "takes no stream": _issue(own, ["localhost"]),
        "TLS": None,
    }.items():
        with _listening(files) as port:
            found[expected] = why(f"localhost:{port}")
            assert "takes no stream" in why(f"localhost:{port}", ca=None)
    found["its name"] = why("no-such-head.invalid:7443")
    assert [expected for expected, line in found.items() if expected not in line] == []
    assert len({line.partition(": ")[2] for line in found.values()}) == len(found)
    nobody = f"127.0.0.1:{free_port()}"
    assert nobody in why(nobody)
