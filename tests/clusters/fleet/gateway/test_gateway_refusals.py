"""Who and what a gateway refuses: each in one line, and another PC plays on."""

import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway import gateway as gateway_module
from soulsgraph_clusters.fleet.gateway.gateway import Gateway, host_of
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.security import Tokens, channel_credentials, make_certificates
from soulsgraph_clusters.fleet.protocol.settings import (
    METHOD,
    PROTOCOL,
    SERVICE,
    Fleet,
    FleetError,
    FleetSettings,
    digests,
    load_fleet,
)
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import installed_version

# Tokens and certificates.


@pytest.mark.parametrize("token", [None, "bare", "x" * 4000])
def test_no_token_and_a_wrong_one_are_refused_and_noted_once(door, token):
    for _ in range(3):
        found = door.client(door.hello(), token=token).refusal()
        assert found.startswith("UNAUTHENTICATED: token: expected one that the head issued to this PC")
    assert door.notes() == [f"127.0.0.1: refused: {found.removeprefix('UNAUTHENTICATED: ')}"]
    door.check_that_it_serves()


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:40122", "10.0.0.7"),
        ("ipv6:%5B::1%5D:40122", "::1"),
        ("ipv6:[fe80::1]:5", "fe80::1"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:40122", "10.0.0.7"),
        ("unix:", "unix:"),
    ],
)
def test_a_host_is_named_without_what_grpc_writes_around_it(peer, host):
    assert host_of(peer) == host


def test_a_token_of_the_past_is_refused(door):
    door.tokens.revoke("attic")
    assert "UNAUTHENTICATED" in door.client(door.hello()).refusal()
    old, door.token = door.token, door.tokens.issue("attic")
    assert "UNAUTHENTICATED" in door.client(door.hello(), token=old).refusal()
    door.joined()
    door.check_that_it_serves()


@pytest.mark.parametrize("change", ["revoke", "issue"])
def test_a_live_stream_ends_when_its_token_is_revoked_or_another_is_issued(door, change):
    client = door.joined()
    cellar = door.client(door.hello(), token=door.tokens.issue("cellar"))
    cellar.wait("task")
    getattr(door.tokens, change)("attic")
    until(lambda: cellar.send(door.health()) and client.ended.is_set(), "the stream's end")
    assert door.wait_for_note("attic/1 left") == "attic/1 left: its token was revoked"
    assert [connection.name for connection in door.gateway.connections.live] == ["cellar/1"]
    assert "UNAUTHENTICATED" in door.client(door.hello()).refusal()
    cellar.send(door.chunk(1))
    assert cellar.acknowledged(1) == {}


def test_a_revocation_that_cannot_be_read_at_once_ends_the_stream_later(door):
    client = door.joined()
    door.tokens.path.chmod(0o644)
    door.tokens.path.touch()
    door.wait_for_note("tokens.json")
    kept = json.loads(door.tokens.path.read_text())
    door.tokens.path.write_text(json.dumps(kept | {"tokens": {}}))
    for _ in range(3):
        client.send(door.health())
        time.sleep(0.5)
    door.tokens.path.chmod(0o600)
    until(lambda: client.send(door.health()) and client.ended.is_set(), "the stream's end")
    assert door.wait_for_note("attic/1 left") == "attic/1 left: its token was revoked"


def test_a_gateway_that_cannot_listen_leaves_no_thread(door):
    settings = replace(door.fleet.settings, listen=door.address)
    before = {*threading.enumerate()}
    for _ in range(3):
        with pytest.raises(FleetError, match="expected to listen"):
            Gateway(Fleet(settings, door.folder), door.admission)
    # One of an earlier test may have ended meanwhile.
    assert {*threading.enumerate()} <= before
    door.check_that_it_serves()


def test_plaintext_at_a_port_with_tls_is_refused_and_tls_goes_on(open_door, tmp_path):
    make_certificates(tmp_path, ["127.0.0.1"])
    door = open_door(settings=FleetSettings(certificate="head.pem", key="head.key"))
    plain = door.client(door.hello())
    assert plain.refusal().startswith("UNAVAILABLE")
    assert door.gateway.connections.live == []
    client = door.client(door.hello(), credentials=channel_credentials(tmp_path / "ca.pem"))
    client.wait("task")
    client.send(door.chunk(1))
    assert client.acknowledged(1) == {}


def test_a_fleet_without_tls_does_not_listen_to_other_machines():
    with pytest.raises(FleetError, match="expected a certificate and its key"):
        FleetSettings(listen="0.0.0.0:7443")


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "\n", "x" * 41, ""])
def test_a_pc_of_the_fleets_file_has_a_name_that_a_token_can_have(tmp_path, name):
    file = tmp_path / "fleet.toml"
    # JSON's texts are TOML's.
    quoted = '"' + name.replace("\n", "\\n") + '"'
    file.write_text(f"[pcs.{quoted}]\nshare = 0.5\n")
    with pytest.raises(SoulsGraphError, match="expected a name of 1 to 40 letters, digits, - and _") as refusal:
        load_fleet(file)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_bytes_that_are_not_even_http_leave_the_gateway_serving(door):
    connections = []
    for number in range(50):
        connection = socket.create_connection(("127.0.0.1", door.gateway.port), timeout=30)
        connections.append(connection)
        # Every fifth says nothing at all, and stays.
        if number % 5:
            connection.sendall((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(9000))[number % 3])
    door.check_that_it_serves()
    for connection in connections:
        connection.close()
    door.check_that_it_serves()
    assert all(note.startswith("other-") for note in door.notes())


# Hellos.


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"pc": "cellar"}, "expected the PC that the token was issued for, attic, found 'cellar'"),
        ({"pc": "x\ny" * 1000}, "expected the PC that the token was issued for, attic, found 'x\\\\ny"),
        ({"protocol": PROTOCOL - 1}, f"expected protocol {PROTOCOL}, found {PROTOCOL - 1} of soulsgraph 0.1.0"),
        ({"protocol": PROTOCOL + 1, "version": "9\n9" * 500}, "of soulsgraph 9?9"),
        ({"digests": {}}, "expected the head's data"),
        ({"digests": {"data": "0\n" * 64, "skills": "1" * 64}}, "found 0?0?"),
        ({"lanes": 0}, "expected 1 to 256 lanes a game, found 0"),
        ({"lanes": 257}, "expected 1 to 256 lanes a game, found 257"),
        ({"lanes": 2**64 - 1}, "expected 1 to 256 lanes a game, found 18446744073709551615"),
        ({"game": ""}, "expected a game's name of 1 to 60 characters"),
        ({"game": "a/b"}, "expected a game's name of 1 to 60 characters"),
        ({"game": "a\nb"}, "expected a game's name of 1 to 60 characters"),
        ({"game": "a" * 61}, "expected a game's name of 1 to 60 characters"),
        ({"driver": "a\nb"}, "expected a driver's name"),
        ({"driver": "a" * 100}, "expected a driver's name"),
        ({"boot": ""}, "expected a boot id of hexadecimal digits"),
        ({"boot": "not a number"}, "expected a boot id of hexadecimal digits"),
        ({"boot": "0" * 10**6}, "expected a boot id of hexadecimal digits"),
        ({"machine": "my PC"}, "expected a machine's id of hexadecimal digits"),
        ({"machine": "0" * 10**6}, "expected a machine's id of hexadecimal digits"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_in_one_line_and_noted_once(door, change, line):
    for _ in range(2):
        found = door.client(door.hello(**change)).refusal()
        assert line.replace("\\\\", "\\") in found
        assert len(found) < 500
    assert door.notes() == [f"attic: refused: {found}"]
    door.check_that_it_serves()
    door.joined()


def test_a_pc_with_other_code_is_refused_by_its_address_both_versions_and_the_remedy(door):
    other = digests() | {"code": "0" * 64}
    found = door.client(door.hello(digests=other, version="0.2.0")).refusal()
    head = f"the head's code ({digests()['code'][:12]} of version {installed_version()})"
    expected = f"expected {head}, found 000000000000 of soulsgraph 0.2.0; install the head's version on the PC."
    assert found == f"attic (127.0.0.1): {expected}"
    asked = door.client(door.hello(digests=other, only_asks=True)).refusal()
    assert "expected the head's code" in asked


def test_a_pc_that_the_fleets_file_does_not_name_is_refused(tmp_path, open_door):
    (tmp_path / "fleet.toml").write_text("[pcs.cellar]\n")
    door = open_door(settings=load_fleet(tmp_path / "fleet.toml").settings)
    assert "expected a PC of the fleet's file, found attic" in door.client(door.hello()).refusal()
    client = door.client(door.hello(), token=door.tokens.issue("cellar"))
    client.wait("task")


def test_a_stream_that_begins_with_something_else_than_a_hello_is_refused(door):
    for message in (door.chunk(1), door.health(), b"", b"\xff" * 1000, b"hello"):
        assert door.client(message).refusal().startswith("fleet: expected ")
    door.check_that_it_serves()
    assert [one for one in door.verdicts() if one[0] != 1] == []


def test_a_stream_that_says_nothing_is_closed(door, monkeypatch):
    with monkeypatch.context() as short:
        short.setattr(gateway_module, "HELLO_WITHIN_S", 0.2)
        assert door.client().refusal() == "fleet: expected a hello within 0.2 s, found none; try again."
    door.check_that_it_serves()


# Messages.


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (b"\x00garbage", "fleet: expected a message of protocol 1, found other bytes; update the PC."),
        (b"\x12\xff\xff\xff\xff\x7f", "fleet: expected a message of protocol 1, found other bytes; update the PC."),
        ({"boot": "zz"}, "chunk: expected a boot id of hexadecimal digits, found 'zz'"),
        ({"boot": "a" * 10**6}, "chunk: expected a boot id of hexadecimal digits"),
    ],
)
def test_a_message_that_no_host_sends_ends_its_stream_and_no_other(door, message, line):
    bystander = door.client(door.hello(), token=door.tokens.issue("cellar"))
    bystander.wait("task")
    client = door.joined()
    client.send(message if isinstance(message, bytes) else door.chunk(1, **message))
    assert line in client.refusal()
    assert line in door.wait_for_note("attic/1 left")
    bystander.send(door.chunk(1))
    assert bystander.acknowledged(1) == {}
    assert door.verdicts() == [(1, "")]
    door.check_that_it_serves()


def test_an_unknown_message_is_passed_over(door):
    client = door.joined()
    client.send(b"", wire.FromGame().SerializeToString() + b"\xfa\x7f\x03new", door.hello(), door.chunk(1))
    assert client.acknowledged(1) == {}


def test_a_message_above_the_limit_ends_its_stream_with_a_line(door):
    client = door.joined()
    client.send(door.chunk(1, columns=bytes(5 * 2**20)))
    assert re.match("RESOURCE_EXHAUSTED: .* message larger than max", client.refusal())
    door.wait_for_note("attic/1 left")
    assert "RESOURCE_EXHAUSTED" in door.client(bytes(5 * 2**20)).refusal()
    door.check_that_it_serves()


_GATEWAY = """
import sys
from pathlib import Path
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters

folder = Path(sys.argv[1])
task = StageTask("iudex-phase1", {"camera": "camera"}, {"camera": skill_hyperparameters(4000)}, 10.0)
journal = Journal(folder / "journal", "camera")
settings = FleetSettings("127.0.0.1:0")
gateway = Gateway(Fleet(settings, folder), Admission(journal, task, 0, settings))
print(gateway.port, flush=True)
sys.stdin.read()
gateway.stop("over")
journal.close()
"""
_GIBIBYTE = 2**30
#: Types of HTTP/2's frames.
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY, _WINDOW = 0, 1, 3, 4, 7, 8


def _frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _text(text):
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data)]) + data


def _send_one_message(port, token, size):
    """Send a message of zeros as far as a server takes it, holding none of it; return how many bytes it took."""
    headers = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{METHOD}", ":authority": "head"}
    headers |= {"content-type": "application/grpc", "te": "trailers", "authorization": f"Bearer {token}"}
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0))
        connection.sendall(_frame(_HEADERS, 4, 1, block))
        windows, sent, begin = {0: 65535, 1: 65535}, 0, struct.pack(">BI", 0, size)
        file = connection.makefile("rb")
        while sent < size:
            room = min(16384, *windows.values())
            if room > 0:
                body = begin + bytes(room - len(begin))
                connection.sendall(_frame(_DATA, 0, 1, body))
                sent, begin, windows = sent + room, b"", {stream: left - room for stream, left in windows.items()}
                continue
            head = file.read(9)
            if len(head) < 9:
                return sent
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            body = file.read(int.from_bytes(head[:3], "big"))
            if kind == _SETTINGS and not flags:
                settings = dict(struct.unpack(">HI", body[at : at + 6]) for at in range(0, len(body), 6))
                windows[1] += settings.get(4, 65535) - 65535
                connection.sendall(_frame(_SETTINGS, 1, 0))
            elif kind == _WINDOW:
                windows[stream] += int.from_bytes(body, "big")
            elif kind in (_RESET, _GOAWAY) or (kind == _HEADERS and flags & 1):
                return sent
    return sent


def _peak_bytes(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("known", [True, False])
def test_a_message_of_a_gibibyte_does_not_grow_the_gateway(tmp_path, known):
    token = Tokens(tmp_path / "tokens.json").issue("attic")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _GATEWAY, tmp_path], **streams) as process:
        port = int(process.stdout.readline())
        # What a first connection of a harmless size costs is not the large message's.
        _send_one_message(port, token, 2**20)
        before = _peak_bytes(process.pid)
        for _ in range(3):
            assert _send_one_message(port, token if known else "wrong", _GIBIBYTE) < 2**26
        assert _peak_bytes(process.pid) - before < 32 * 2**20
        process.stdin.close()
        assert process.wait() == 0
