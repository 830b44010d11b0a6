"""A PC's games as processes: started again whatever ends them, and refused in one line where they cannot be."""

import io
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fakes.fleet_here import CAMERA, GatewayHere
from fakes.waiting import until
from soulsgraph_clusters.fleet.actor import host, process
from soulsgraph_clusters.fleet.actor.host import HostOptions, PCGame, ask
from soulsgraph_clusters.fleet.actor.process import GameOrder, GameProcess, read_message, write_message
from soulsgraph_clusters.fleet.actor.spool import Spool, pause_file
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway.gateway import UNKNOWN_TOKEN
from soulsgraph_clusters.fleet.protocol.certificates import CERTIFICATE, KEY, make_certificate
from soulsgraph_clusters.fleet.protocol.settings import METHOD, SERVICE, FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, write_token_file
from soulsgraph_envs.games.link import GameSettings


def has_ipv6():
    """Return whether this machine can listen at ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _kept(folder, report, projects=()):
    """Keep a simulator in a process of its own playing for a head that is not there."""
    write_token_file(folder / "token", "0" * 64)
    order = GameOrder(GameSettings("simulator"), "1", pause_file(folder), projects)
    head = Head("127.0.0.1:1", folder / "token")
    return PCGame(head, folder / "game-1", lambda: GameProcess(order), report)


@pytest.fixture
def keep(tmp_path):
    """Keep a game as `_kept` does; it ends with the test."""
    kept = []

    def make(report, **options):
        kept.append(_kept(tmp_path, report, **options))
        return kept[-1]

    yield make
    for one in kept:
        one.stop()
        one.join()


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for Python")
def test_a_game_that_cannot_be_started_or_read_is_tried_again(tmp_path, monkeypatch, keep):
    monkeypatch.setattr(process, "RESTART_AFTER_S", (0.01, 0.05))
    program, lines = tmp_path / "python", []
    monkeypatch.setattr(sys, "executable", str(program))

    def report(line):
        lines.append(line)
        if len(lines) % 2:
            raise OSError("nobody reads this")

    keep(report)
    until(lambda: len(lines) > 2, "further attempts")
    # It reads nothing, and says what no player says.
    whole = tmp_path / "whole"
    whole.write_text("#!/bin/sh\nexec <&-\nprintf 'a\\377b\\n'\nexit 3\n")
    whole.chmod(0o700)
    whole.rename(program)
    until(lambda: sum("ended with code 3" in line for line in lines) > 2, "further starts")


def test_two_hosts_of_one_user_keep_what_they_send_apart_and_two_of_one_token_do_not(tmp_path):
    def spool(name):
        return HostOptions("127.0.0.1:7443", tmp_path / name, tmp_path / "games.toml").game_spool(1)

    assert spool("attic.token") == spool("attic.token") != spool("cellar.token")
    # Tokens of one name lie in folders of two heads.
    assert spool("one/token") != spool("two/token")
    assert spool("attic.token").parent.parent == spool("cellar.token").parent.parent == host.state_folder()


@pytest.mark.slow
def test_a_spool_that_another_process_has_is_one_line_and_the_game_plays_when_it_is_free(tmp_path, monkeypatch, keep):
    monkeypatch.setattr(process, "RESTART_AFTER_S", (0.01, 0.1))
    spool, lines, starts = Spool(tmp_path / "game-1"), [], []
    play = PCGame._play
    monkeypatch.setattr(PCGame, "_play", lambda self: starts.append(time.monotonic()) or play(self))
    kept = keep(lines.append)
    until(lambda: len(starts) > 2, "further attempts")
    spool.close()
    until(lambda: any("no head answers" in line for line in lines), "a game that looks for its head")
    kept.game.kill()
    until(lambda: any("ended with code -9; it is started again in 0.01 s" in line for line in lines), "its end")
    # It is said once, however often it is tried.
    assert sum("is tried again every 0.1 s" in line for line in lines) == 1


def test_any_character_of_a_refusal_arrives_once(tmp_path, monkeypatch, keep):
    monkeypatch.setattr(process, "RESTART_AFTER_S", (0.01, 0.05))
    # As on Windows, where text that is no terminal's has an encoding of few characters.
    for name, value in (("LC_ALL", "C"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "0")):
        monkeypatch.setenv(name, value)
    folder, lines, starts = tmp_path / "渡辺", [], []
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, _of=subprocess.Popen, **of: starts.append(1) or _of(*words, **of)
    )
    keep(lines.append, projects=(folder,))
    until(lambda: len(starts) > 2, "further starts")
    assert len(lines) == 1
    assert str(folder) in lines[0]


def test_a_message_that_is_not_whole_is_the_end():
    pipe = io.BytesIO()
    write_message(pipe, ["a"])
    whole = pipe.getvalue()
    assert read_message(io.BytesIO(whole)) == ["a"]
    for size in (0, 3, 8, len(whole) - 1):
        with pytest.raises(EOFError):
            read_message(io.BytesIO(whole[:size]))


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN), UNKNOWN_TOKEN),
        (lambda *_: iter(()), "127.0.0.1"),
        # Of several lines, as Windows has them.
        (
            lambda _, context: context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Connection refused.\r\n -- 10061"),
            "Connection refused. -- 10061",
        ),
    ],
)
def test_what_a_head_answers_instead_of_a_stage_is_one_line(tmp_path, answer, line):
    write_token_file(tmp_path / "token", Tokens(tmp_path / "tokens.json").issue("attic"))
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.stream_stream_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(FleetError) as refused:
            ask(HostOptions(f"127.0.0.1:{port}", tmp_path / "token", tmp_path / "games.toml"))
    finally:
        server.stop(0).wait()
    assert line in str(refused.value)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on its loopback")
@pytest.mark.slow
def test_a_pc_that_has_ipv6_alone_plays_by_tls_and_is_shown_with_its_address(tmp_path):
    make_certificate(tmp_path, ["::1"])
    settings = FleetSettings(certificate=CERTIFICATE, key=KEY)
    (tmp_path / "games.toml").write_text('[[games]]\ndriver = "simulator"\nspeed = 50.0\n')
    with GatewayHere(tmp_path, CAMERA, settings, host="[::1]") as here:
        here.publish()
        files = here.token_file(), tmp_path / "games.toml", tmp_path / CERTIFICATE
        options = HostOptions(here.address, *files, spool=tmp_path / "spool")
        assert options.head == f"[::1]:{here.gateway.port}"
        assert ask(options) == "stage"
        with host.playing(options, lambda number, line: None):
            until(lambda: len(here.records()) > 1, "chunks by IPv6")
            (game,) = here.status.describe(1).games
    assert (game.name, game.address) == ("attic/1", "::1")
