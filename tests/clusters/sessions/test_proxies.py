"""No client of ours uses a proxy of the environment unless asked, and one that is asked for is named."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.actor.host import HostOptions, ask
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.protocol.security import write_token_file
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.access import USE_PROXY, by_proxy, uses_proxy

#: Names that libraries read, in either case.
_NAMES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@pytest.fixture(autouse=True)
def dead(monkeypatch):
    """Let every variable name a proxy that does not answer; return its place."""
    place = f"127.0.0.1:{free_port()}"
    for name in _NAMES:
        monkeypatch.setenv(name, f"http://ada:secret@{place}")
        monkeypatch.setenv(name.upper(), f"http://ada:secret@{place}")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy", USE_PROXY):
        monkeypatch.delenv(name, raising=False)
    return place


class _Anything(grpc.GenericRpcHandler):
    """Answer every call with nothing."""

    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


@pytest.fixture
def server():
    """Return the address of a gRPC server."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[_Anything()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def test_a_game_pc_and_the_clients_of_a_siphon_server_reach_it(server):
    pytest.importorskip("pysiphon")
    from soulsgraph_envs.compat.eldengym import EldenClient, SiphonClient
    from soulsgraph_envs.games.siphon_link import SiphonCalls

    channels = [
        Head(server, Path("none")).channel(),
        SiphonCalls(server)._channel,
        SiphonClient(server).channel,
        EldenClient(server).channel,
    ]
    for channel in channels:
        assert channel.unary_unary("/any/Call")(b"", timeout=PATIENCE_S) == b""
        channel.close()


def test_one_that_is_asked_for_is_used_beyond_this_machine_and_named_without_its_password(dead, monkeypatch, tmp_path):
    assert not uses_proxy("192.0.2.1:7443")
    assert by_proxy("192.0.2.1:7443") == ""
    monkeypatch.setenv(USE_PROXY, "1")
    assert [uses_proxy(each) for each in ("192.0.2.1:7443", "127.0.0.1:7443", "[::1]:7443")] == [True, False, False]
    assert by_proxy("192.0.2.1:7443") == f" by the proxy {dead}"
    monkeypatch.setenv("no_proxy", "192.0.2.1")
    assert by_proxy("192.0.2.1:7443") == ""
    monkeypatch.delenv("no_proxy")
    token, games, ca = tmp_path / "token", tmp_path / "games.toml", tmp_path / "ca.pem"
    write_token_file(token, "secret")
    monkeypatch.setattr("soulsgraph_clusters.fleet.actor.host.channel_credentials", lambda ca: None)
    with pytest.raises(FleetError, match=f"by the proxy {dead}"):
        ask(HostOptions("192.0.2.1:7443", token, games, ca))
