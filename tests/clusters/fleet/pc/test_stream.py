"""Which of its head's gateways a game dials, and where it goes when that one is lost."""

import sys
import time

import pytest

from soulsgraph_clusters.fleet.pc import stream
from soulsgraph_clusters.fleet.pc.host import HostOptions
from soulsgraph_clusters.fleet.pc.stream import Head
from soulsgraph_clusters.fleet.security import write_token_file
from soulsgraph_clusters.fleet.settings import FleetError
from soulsgraph_clusters.local_ray import free_port
from soulsgraph_clusters.testing.fleet_here import GatewayHere, playing
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.testing import until

FAST = GameSettings(driver="simulator", speed=20.0, lanes=2)


@pytest.fixture
def here(tmp_path, lock_on_task):
    """A head on the loopback, with weights."""
    with GatewayHere(tmp_path / "head", lock_on_task) as here:
        here.publish()
        yield here


def _live(here):
    return [session.name for session in here.gateway.sessions.live]


@pytest.mark.parametrize("first", [True, False])
def test_the_one_that_answers_is_dialled_wherever_it_is_named(here, tmp_path, monkeypatch, first):
    monkeypatch.setattr(stream, "PREFER_S", 0.5)
    nobody = f"127.0.0.1:{free_port()}"
    address = f"{here.address},{nobody}" if first else f"{nobody},{here.address}"
    with playing(Head(address, here.token_file()), tmp_path / "spool", FAST):
        until(lambda: _live(here) == ["attic/1"], "a stream")
        until(here.records, "a chunk")


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
