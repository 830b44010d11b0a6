"""No client of ours uses a proxy of the environment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.sessions.local_ray import free_port

#: Names that libraries read, in either case.
_NAMES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@pytest.fixture(autouse=True)
def dead(monkeypatch):
    """Let every variable name a proxy that does not answer."""
    place = f"127.0.0.1:{free_port()}"
    for name in _NAMES:
        monkeypatch.setenv(name, f"http://ada:secret@{place}")
        monkeypatch.setenv(name.upper(), f"http://ada:secret@{place}")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


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
