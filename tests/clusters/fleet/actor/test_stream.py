"""How a game dials its head, and what a PC is told where none answers."""

import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from fakes.fleet_here import GatewayHere, playing
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.actor import stream
from soulsgraph_clusters.fleet.actor.host import HostOptions
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.protocol.certificates import CERTIFICATE, KEY, make_certificate
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.fleet.protocol.tokens import write_token_file
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


@contextmanager
def _listening(folder=None):
    """Yield the port of a server on the loopback, by TLS with the certificate in a folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if folder:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)

    class Handler(BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                if folder:
                    context.wrap_socket(self.request, server_side=True).close()
                else:
                    self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ThreadingTCPServer(("0.0.0.0", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_each_reason_for_which_no_head_answers_has_a_line_of_its_own(tmp_path, monkeypatch):
    # Each step ends by itself, on a busy machine after longer than a person waits.
    monkeypatch.setattr(stream, "_STEP_WITHIN_S", PATIENCE_S)
    own, other, old = (tmp_path / name for name in ("own", "other", "old"))
    for folder in (own, other):
        make_certificate(folder, ["head.lan"])
    make_certificate(old, ["head.lan"], timedelta(hours=-1))

    def why(address, ca=own):
        return stream.why_silent(Head(address, tmp_path / "token", ca=ca and ca / CERTIFICATE))

    found = {}
    for expected, folder, host, ca in (
        ("another than", other, "localhost", own),
        ("this address", own, "127.0.0.2", own),
        ("expired", old, "localhost", old),
        ("takes no stream", own, "localhost", own),
        ("TLS", None, "localhost", own),
    ):
        with _listening(folder) as port:
            found[expected] = why(f"{host}:{port}", ca)
            assert "takes no stream" in why(f"{host}:{port}", ca=None)
    found["its name"] = why("no-such-head.invalid:7443")
    assert [expected for expected, line in found.items() if expected not in line] == []
    assert len({line.partition(": ")[2] for line in found.values()}) == len(found)
    nobody = f"127.0.0.1:{free_port()}"
    assert nobody in why(nobody)
