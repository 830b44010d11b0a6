"""Which of its head's gateways a game dials, and where it goes when that one is lost."""

import ssl
import sys
import threading
import time
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
from soulsgraph_envs.core.access import USE_PROXY
from soulsgraph_envs.games.link import GameSettings

FAST = GameSettings(driver="simulator", speed=20.0, lanes=2)


@pytest.fixture
def here(tmp_path, lock_on_task):
    """A head on the loopback, with weights."""
    with GatewayHere(tmp_path / "head", lock_on_task) as here:
        here.publish()
        yield here


def _live(here):
    return [connection.name for connection in here.gateway.connections.live]


@pytest.mark.parametrize("first", [True, False])
def test_the_one_that_answers_is_dialled_wherever_it_is_named(here, tmp_path, monkeypatch, first):
    monkeypatch.setattr(stream, "PREFER_S", 0.5)
    nobody = f"127.0.0.1:{free_port()}"
    address = f"{here.address},{nobody}" if first else f"{nobody},{here.address}"
    with playing(Head(address, here.token_file()), tmp_path / "spool", FAST):
        until(lambda: _live(here) == ["attic/1"], "a stream")
        until(here.records, "a chunk")


@pytest.mark.slow
def test_one_that_is_named_before_is_waited_for_as_long_as_it_may_start(here, tmp_path, lock_on_task):
    began_s, address = time.monotonic(), f"127.0.0.1:{free_port()}"
    with playing(Head(f"{address},{here.address}", here.token_file()), tmp_path / "spool", FAST):
        time.sleep(3.0)
        assert _live(here) == []
        until(lambda: _live(here), "a stream")
    assert time.monotonic() - began_s > stream.PREFER_S - 1.0


def test_what_was_reported_is_said_to_be_over_once_the_head_takes_the_game(here, tmp_path):
    token, lines = tmp_path / "token", []
    write_token_file(token, "0" * 64)
    with playing(Head(here.address, token), tmp_path / "spool", FAST, report=lines.append):
        until(lambda: any("expected one that the head issued" in line for line in lines), "a refusal")
        token.unlink()
        write_token_file(token, here.tokens.issue("attic"))
        until(lambda: "playing" in lines, "play")
    assert lines.count("the head answers") == 1
    assert lines.index("the head answers") < lines.index("playing")


@pytest.mark.slow
def test_where_none_answers_one_line_names_them_all(tmp_path, here, monkeypatch):
    monkeypatch.setattr(stream, "CONNECT_WITHIN_S", 2.0)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    lines = []
    with playing(Head(",".join(addresses), here.token_file()), tmp_path / "spool", FAST, report=lines.append):
        until(lambda: lines, "a line")
        time.sleep(8.0)
    assert lines == [f"no head answers at {addresses[0]} or {addresses[1]}; it listens while a stage is trained"]


def test_no_thread_of_grpc_watches_a_channel_that_may_be_closed_meanwhile(tmp_path, here):
    nobody = f"127.0.0.1:{free_port()}"
    with playing(Head(f"{nobody},{here.address}", here.token_file()), tmp_path / "spool", FAST):
        until(lambda: _runs("channel_spin"), "a stream that waits for an answer")
        assert not _runs("_poll_connectivity")


def _runs(function):
    """Return whether a thread is in a function of this name now."""
    frames = list(sys._current_frames().values())
    while frames:
        frame = frames.pop()
        if frame.f_code.co_name == function:
            return True
        frames += [frame.f_back] if frame.f_back else []
    return False


@pytest.mark.parametrize("head", ["127.0.0.1:7443,", "127.0.0.1:7443,head", "127.0.0.1:1,127.0.0.1:70000"])
def test_every_address_has_a_host_and_a_port(tmp_path, head):
    with pytest.raises(FleetError, match="head: expected HOST:PORT"):
        HostOptions(head, tmp_path / "token", tmp_path / "games.toml")


def test_no_address_of_another_machine_gets_a_token_without_the_ca(tmp_path):
    with pytest.raises(FleetError, match=r"expected the fleet's CA for 10\.0\.0\.3"):
        HostOptions("127.0.0.1:7443,10.0.0.3:7443", tmp_path / "token", tmp_path / "games.toml")


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
    (folder / "own.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "own.key").write_bytes(key_pem(key))
    return folder / "own.pem", folder / "own.key"


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
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    # Each step ends by itself, on a busy machine after longer than a person waits.
    monkeypatch.setattr(stream, "_STEP_WITHIN_S", PATIENCE_S)
    own, other = tmp_path / "own", tmp_path / "other"
    make_certificates(own, ["head.lan"])
    make_certificates(other, ["head.lan"])

    def why(address, ca=own / "ca.pem"):
        return stream.why_silent(Head(address, tmp_path / "token", ca=ca))

    found = {}
    with _listening(_issue(other, ["localhost"])) as port:
        found["its certificate is of another CA than `ca`; copy the head's ca.pem here"] = why(f"localhost:{port}")
    with _listening(_issue(own, ["head.lan"])) as port:
        found["its certificate is not made out to this address"] = why(f"localhost:{port}")
    with _listening(_issue(own, ["localhost"], -3, -2)) as port:
        found["its certificate expired; make it anew on the head"] = why(f"localhost:{port}")
    with _listening(_issue(own, ["localhost"], 1, 2)) as port:
        found["its certificate is not valid yet"] = why(f"localhost:{port}")
    with _listening(_issue(own, ["localhost"])) as port:
        found["it answers, and takes no stream"] = why(f"localhost:{port}")
        assert "takes no stream" in why(f"localhost:{port}", ca=None)
    with _listening() as port:
        found["what listens there does not speak TLS"] = why(f"localhost:{port}")
    found["its name is not known on this PC"] = why("no-such-head.invalid:7443")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv(USE_PROXY, "1")
    found["it is asked by the proxy 127.0.0.1:1, which does not lead there"] = why("head.lan:7443")
    for expected, line in found.items():
        assert expected in line
        assert line.endswith("; `check` examines the way")
    assert len({line.partition(": ")[2] for line in found.values()}) == len(found)
    monkeypatch.delenv(USE_PROXY)
    nobody = f"127.0.0.1:{free_port()}"
    assert why(nobody) == f"no head answers at {nobody}; it listens while a stage is trained"
