"""Who and what a gateway refuses, and that another PC plays on; test_messages.py has every field's bounds."""

import json
import threading
import time
from dataclasses import replace

import pytest

from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway import gateway as gateway_module
from soulsgraph_clusters.fleet.gateway import runner
from soulsgraph_clusters.fleet.gateway.gateway import Gateway, host_of
from soulsgraph_clusters.fleet.protocol.certificates import make_certificate
from soulsgraph_clusters.fleet.protocol.settings import HELD_FOR_S, Fleet, FleetError, FleetSettings, InUseError

# Tokens and certificates.


@pytest.mark.parametrize("token", [None, "x" * 4000])
def test_no_token_and_a_wrong_one_are_refused_and_noted_once(door, token):
    for _ in range(2):
        found = door.client(door.hello(), token=token).refusal()
        assert found.startswith("UNAUTHENTICATED: ")
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


@pytest.mark.parametrize("change", ["revoke", "issue"])
def test_a_live_stream_ends_when_its_token_is_revoked_or_another_is_issued(door, change):
    client = door.joined()
    cellar = door.client(door.hello(), token=door.tokens.issue("cellar"))
    cellar.wait("task")
    getattr(door.tokens, change)("attic")
    until(client.ended.is_set, "the stream's end")
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
    door.tokens.path.write_text(json.dumps(kept | {"pcs": {}}))
    # Longer than it takes to look again.
    time.sleep(0.2)
    assert not client.ended.is_set()
    door.tokens.path.chmod(0o600)
    until(client.ended.is_set, "the stream's end")


def test_a_gateway_that_cannot_listen_leaves_no_thread(door):
    settings = replace(door.fleet.settings, listen=door.address)
    before = {*threading.enumerate()}
    with pytest.raises(InUseError, match="listen"):
        Gateway(Fleet(settings, door.folder), door.admission)
    # One of an earlier test may have ended meanwhile.
    assert {*threading.enumerate()} <= before
    door.check_that_it_serves()


@pytest.mark.parametrize("listen", ["192.0.2.1:7443", "no-such-head.invalid:7443"])
def test_an_address_that_is_not_this_machines_is_refused_at_once(tmp_path, listen):
    make_certificate(tmp_path, ["127.0.0.1"])
    fleet = Fleet(FleetSettings(listen, certificate="head.pem", key="head.key"), tmp_path)
    began_s = time.monotonic()
    with pytest.raises(FleetError, match=listen) as found:
        runner._patiently(lambda: Gateway(fleet, None))
    assert not isinstance(found.value, InUseError)
    assert time.monotonic() - began_s < HELD_FOR_S


# Hellos.


@pytest.mark.parametrize("change", [{"lanes": 257}, {"digests": {"code": "0" * 64}}, {"lanes": 0, "only_asks": True}])
def test_a_hello_that_does_not_fit_is_refused_and_noted_once_until_the_pc_plays(door, change):
    for _ in range(2):
        found = door.client(door.hello(**change)).refusal()
    assert door.notes() == [f"attic: refused: {found}"]
    assert door.gateway.connections.refusals.keys() == {"attic"}
    door.joined()
    assert not door.gateway.connections.refusals
    door.check_that_it_serves()


def test_a_stream_that_begins_with_something_else_than_a_hello_is_refused(door):
    for message in (door.chunk(1), door.health(), b"", b"\xff" * 1000, b"hello"):
        assert door.client(message).refusal().startswith("fleet: expected ")
    door.check_that_it_serves()
    assert [one for one in door.verdicts() if one[0] != 1] == []


def test_a_stream_that_says_nothing_is_closed(door, monkeypatch):
    monkeypatch.setattr(gateway_module, "HELLO_WITHIN_S", 0.2)
    assert door.client().refusal()


# Messages.


@pytest.mark.parametrize("message", [b"\x12\xff\xff\xff\xff\x7f", {"boot": "zz"}])
def test_a_message_that_no_host_sends_ends_its_stream_and_no_other(door, message):
    bystander = door.client(door.hello(), token=door.tokens.issue("cellar"))
    bystander.wait("task")
    client = door.joined()
    client.send(message if isinstance(message, bytes) else door.chunk(1, **message))
    assert client.refusal() in door.wait_for_note("attic/1 left")
    bystander.send(door.chunk(1))
    assert bystander.acknowledged(1) == {}
    assert door.verdicts() == [(1, "")]


def test_a_message_above_the_limit_ends_its_stream(door):
    client = door.joined()
    client.send(door.chunk(1, columns=bytes(5 * 2**20)))
    assert client.refusal().startswith("RESOURCE_EXHAUSTED")
    assert door.client(bytes(5 * 2**20)).refusal().startswith("RESOURCE_EXHAUSTED")
    door.check_that_it_serves()
