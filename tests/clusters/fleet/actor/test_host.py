"""A PC's games as processes: started again whatever ends them, and refused in one line where they cannot be."""

import pickle
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest

from fakes.fleet_here import GatewayHere
from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.fleet.actor import host
from soulsgraph_clusters.fleet.actor.host import GameProcess, HostOptions, ask
from soulsgraph_clusters.fleet.protocol.security import Tokens, make_certificates, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import METHOD, SERVICE, Fleet, FleetError, FleetSettings, sole_head
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import Spool
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

TASK = StageTask(
    "iudex-phase1", {"camera": "camera"}, {"camera": DQNHyperparameters(budget=10**9, capacity=1000)}, 10.0
)


def has_ipv6():
    """Return whether this machine can listen at ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _order(folder, game=1):
    options = HostOptions("127.0.0.1:1", folder / "token", folder / "games.toml", spool=folder, spool_mb=1)
    return host._Order(options, game, "a" * 16)


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for Python")
def test_a_game_that_cannot_be_started_or_read_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "RESTART_AFTER_S", (0.01, 0.05))
    program, lines = tmp_path / "python", []
    monkeypatch.setattr(sys, "executable", str(program))

    def report(line):
        lines.append(line)
        if len(lines) % 2:
            raise OSError("nobody reads this")

    process = GameProcess(_order(tmp_path), report)
    try:
        until(lambda: len(lines) > 2, "further attempts")
        # It reads nothing, and says what is no text.
        whole = tmp_path / "whole"
        whole.write_text("#!/bin/sh\nexec <&-\nprintf 'a\\377b\\n'\nexit 3\n")
        whole.chmod(0o700)
        whole.rename(program)
        until(lambda: any("ended with code 3" in line for line in lines[3:]), "an end")
        until(lambda: lines.count("a\N{REPLACEMENT CHARACTER}b") > 2, "further starts")
    finally:
        process.stop()
        process.join()


def test_two_hosts_of_one_user_keep_what_they_send_apart_and_two_of_one_token_do_not(tmp_path):
    def spool(name):
        return HostOptions("127.0.0.1:7443", tmp_path / name, tmp_path / "games.toml").game_spool(1)

    assert spool("attic.token") == spool("attic.token") != spool("cellar.token")
    # Tokens of one name lie in folders of two heads.
    assert spool("one/token") != spool("two/token")
    assert spool("attic.token").parent.parent == spool("cellar.token").parent.parent == host.state_folder()


@pytest.mark.slow
def test_a_spool_that_another_process_has_is_one_line_and_the_game_plays_when_it_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "RESTART_AFTER_S", (0.01, 0.1))
    write_token_file(tmp_path / "token", Tokens(tmp_path / "tokens.json").issue("attic"))
    (tmp_path / "games.toml").write_text('[[games]]\ndriver = "simulator"\n')
    order = _order(tmp_path)
    spool, lines, starts = Spool(order.options.game_spool(1)), [], []
    play = GameProcess._play
    monkeypatch.setattr(GameProcess, "_play", lambda self: starts.append(time.monotonic()) or play(self))
    process = GameProcess(order, lines.append)
    try:
        until(lambda: len(starts) > 2, "further attempts")
        spool.close()
        until(lambda: any("no head answers" in line for line in lines), "a game that looks for its head")
        process._process.kill()
        until(lambda: any("ended with code -9; it is started again in 0.01 s" in line for line in lines), "its end")
    finally:
        process.stop()
        process.join()
        spool.close()
    # It is said once, however often it is tried.
    assert sum("is tried again every 0.1 s" in line for line in lines) == 1
    assert not any("code 2" in line for line in lines)


def test_a_game_that_is_no_longer_in_the_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "games.toml").write_text('[[games]]\ndriver = "simulator"\n')
    order = pickle.dumps(_order(tmp_path, game=2))
    program = [sys.executable, "-m", host.__name__]
    done = subprocess.run(program, input=order, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"game 2" in done.stdout
    assert done.stdout.count(b"\n") == 1


def _answer(folder, answer):
    """Ask a head that answers so, and return the error's text."""
    write_token_file(folder / "token", Tokens(folder / "tokens.json").issue("attic"))
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.stream_stream_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(FleetError) as refused:
            ask(HostOptions(f"127.0.0.1:{port}", folder / "token", folder / "games.toml"))
    finally:
        server.stop(0).wait()
    return str(refused.value)


def test_a_head_that_ends_the_stream_without_an_answer_is_an_error(tmp_path):
    assert "127.0.0.1" in _answer(tmp_path, lambda messages, context: iter(()))


def test_a_reason_of_several_lines_as_windows_has_them_becomes_one(tmp_path):
    def refuse(messages, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "Connection refused.\r\n -- 10061")

    assert "Connection refused. -- 10061" in _answer(tmp_path, refuse)


def test_any_character_that_a_game_prints_arrives(tmp_path, monkeypatch):
    # As on Windows, where text that is no terminal's has an encoding of few characters.
    for name, value in (("LC_ALL", "C"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "0")):
        monkeypatch.setenv(name, value)
    folder, lines = tmp_path / "渡辺", []
    process = GameProcess(_order(folder), lines.append)
    try:
        until(lambda: lines, "a refusal")
    finally:
        process.stop()
        process.join()
    assert len(lines) == 1
    assert str(folder / "games.toml") in lines[0]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on its loopback")
@pytest.mark.slow
def test_a_pc_that_has_ipv6_alone_plays_by_tls_and_is_shown_with_its_address(tmp_path):
    made = make_certificates(tmp_path, ["::1"])
    settings = FleetSettings(certificate=made.certificate.name, key=made.key.name)
    (tmp_path / "games.toml").write_text('[[games]]\ndriver = "simulator"\nspeed = 50.0\n')
    with sole_head(Fleet(replace(settings, listen="[::1]:0"), tmp_path)):
        pass  # What `train --fleet` asks first.
    with GatewayHere(tmp_path, TASK, settings, host="::1") as here:
        here.publish()
        files = here.token_file(), tmp_path / "games.toml", tmp_path / "ca.pem"
        options = HostOptions(here.address, *files, spool=tmp_path / "spool")
        assert options.head == f"[::1]:{here.gateway.port}"
        assert ask(options) == "stage"
        with host.playing(options, lambda number, line: None):
            until(lambda: len(here.records()) > 1, "chunks by IPv6")
            (game,) = here.status.describe(1).games
    assert (game.name, game.address) == ("attic/1", "::1")
