"""The Siphon link to a stand-in behind a server, and the failures between them."""

from __future__ import annotations

import logging
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pysiphon import SiphonClient

from fakes.served_stand_in import ServedStandIn, served_stand_in
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.link import GameSettings, Link, LinkError, RefusedError
from soulsgraph_envs.games.siphon_link import ANSWERS, CALL_TIMEOUT_S, SiphonCalls, SiphonLink, grpc, service
from soulsgraph_envs.games.standin.launch import ServingOptions, StandInOptions
from soulsgraph_envs.games.standin.siphon_server import SiphonServer
from soulsgraph_envs.games.x11 import XTestDevice

#: A link whose calls may take as long as a busy machine needs.
patient_link = partial(SiphonLink, patience_s=PATIENCE_S)


@pytest.fixture(scope="module")
def served(screen: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStandIn]:
    serving = ServingOptions("127.0.0.1:0", display=screen, recordings=tmp_path_factory.mktemp("recordings"))
    with served_stand_in(serving, StandInOptions(display=screen)) as served:
        yield served


@pytest.fixture
def link(served: ServedStandIn) -> Iterator[SiphonLink]:
    link = patient_link(served.settings)
    link.attach(PATIENCE_S)
    yield link
    link.close()


@pytest.fixture
def device(screen: str) -> Iterator[XTestDevice]:
    device = XTestDevice(screen)
    yield device
    device.close()


class AnotherServer(service.SiphonServiceServicer):
    """A third-party Siphon server, which reports any status."""

    def GetServerStatus(self, request: object, context: object) -> object:  # noqa: N802 - the protocol's name
        return ANSWERS["GetServerStatus"](success=True, message="Server is running")


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate of a name or address, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=a game PC", "-addext", f"subjectAltName={name}"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def own_address() -> str:
    """Return the address by which others reach this machine; the loopback address if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            # Nothing is sent: the kernel chooses the address it would send from.
            asked.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(asked.getsockname()[0])


def can_read(link: SiphonLink) -> bool:
    try:
        link.read()
    except LinkError:
        return False
    return True


def test_the_link_keeps_its_contract(link: SiphonLink) -> None:
    assert isinstance(link, Link)
    reading = link.read()
    assert reading.keys() == link.supplies
    assert (reading["boss_name"], reading["flasks"], reading["boss_hp_max"]) == ("c5110", 3.0, 1037.0)
    assert np.hypot(reading["camera_x"], reading["camera_y"]) == pytest.approx(1.0, abs=0.1)
    assert link.focused()


def test_the_link_writes_in_one_piece_and_by_itself(link: SiphonLink) -> None:
    link.write({"no_ai": 1.0, "no_move": 1.0, "no_attack": 1.0, "no_damage": 1.0})
    link.write({"player_x": 136.0, "player_y": 595.0, "player_z": -68.8, "flasks": 2.0, "player_no_gravity": 1.0})
    until(lambda: link.read()["flasks"] == 2.0)
    reading = link.read()
    assert reading["player_x"] == pytest.approx(136.0, abs=0.5)
    assert reading["player_y"] == pytest.approx(595.0, abs=0.5)
    assert reading["player_no_gravity"] == reading["no_ai"] == 1.0
    link.write({"player_no_gravity": 0.0, "no_ai": 0.0, "no_move": 0.0, "no_attack": 0.0, "flasks": 3.0})
    until(lambda: link.read()["no_ai"] == 0.0)
    with pytest.raises(GameError, match="boss_name"):
        link.write({"boss_name": 1.0})


def test_the_link_takes_pictures(link: SiphonLink) -> None:
    assert link.capture().shape == (450, 800, 3)
    frames = link.frames()
    assert next(frames).shape == next(frames).shape == (450, 800, 3)
    frames.close()


def test_keys_come_up_when_the_link_closes(served: ServedStandIn, device: XTestDevice) -> None:
    link = patient_link(served.settings)
    link.attach(PATIENCE_S)
    for key in ("w", "left_shift", "mouse_left"):
        link.keys.check(key)
        link.keys.press(key)
    assert set(device.down()) == {"w", "left_shift", "mouse_left"}
    link.close()
    assert device.down() == ()
    link.close()
    with pytest.raises(LinkError, match="closed"):
        link.read()


def test_a_link_finds_the_game_again_after_it_moved_and_after_it_crashed(
    served: ServedStandIn, link: SiphonLink
) -> None:
    served.game.tell("move")
    until(lambda: not can_read(link))
    link.attach(PATIENCE_S)
    assert link.read()["boss_hp_max"] == 1037.0
    served.game.tell("crash")
    until(lambda: not can_read(link))
    link.attach(PATIENCE_S)
    assert link.read()["boss_hp_max"] == 1037.0


def test_a_link_comes_back_to_a_server_that_was_away(served: ServedStandIn, tmp_path: Path) -> None:
    serving = ServingOptions("127.0.0.1:0", display=served.serving.display)
    server = SiphonServer(serving, served.game.living_pid, captured_slots=True)
    link = patient_link(replace(served.settings, host=server.address))
    try:
        link.attach(PATIENCE_S)
        server.close()
        with pytest.raises(LinkError, match="found nobody there"):
            link.read()
        with pytest.raises(LinkError):
            link.attach(0.3)
        server = SiphonServer(replace(serving, address=server.address), served.game.living_pid, captured_slots=True)
        link.attach(PATIENCE_S)
        assert can_read(link)
    finally:
        link.close()
        server.close()


def test_a_server_that_lacks_our_method_is_told_before_anything_is_sent() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    service.add_SiphonServiceServicer_to_server(AnotherServer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    link = patient_link(GameSettings(driver="siphon", host=f"127.0.0.1:{port}"))
    with pytest.raises(GameError, match="understands the method 'module'"):
        link.attach(PATIENCE_S)
    link.close()
    server.stop(None).wait()


class SlowServer(service.SiphonServiceServicer):
    """A server that answers after longer than a control loop waits."""

    def GetServerStatus(self, request: object, context: object) -> object:  # noqa: N802 - the protocol's name
        time.sleep(1.5 * CALL_TIMEOUT_S)
        return ANSWERS["GetServerStatus"](success=True, message="Server is running")


def test_an_answer_is_waited_for_as_long_as_patience_says() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    service.add_SiphonServiceServicer_to_server(SlowServer(), server)
    settings = GameSettings(driver="siphon", host=f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    patient, prompt = SiphonCalls(settings, PATIENCE_S), SiphonCalls(settings)
    assert patient.call("GetServerStatus").message == "Server is running"
    with pytest.raises(LinkError, match="expected an answer to GetServerStatus in time, found none"):
        prompt.call("GetServerStatus")
    for calls in (patient, prompt):
        calls.close()
    # A stream's call is made when its first answer is asked for: in a thread, that may be after the end.
    with pytest.raises(LinkError, match="expected an open link for StreamFrames, found a closed one"):
        next(prompt.stream("StreamFrames"))
    server.stop(None).wait()


def test_the_server_finds_the_game_whatever_was_launched_here(served: ServedStandIn) -> None:
    with pytest.raises(GameError, match="expected no pid, found 4242"):
        patient_link(replace(served.settings, pid=4242))
    link = patient_link(served.settings)
    link.attach(PATIENCE_S, process_id=4242)
    assert can_read(link)
    link.close()


def test_nobody_there_is_told(served: ServedStandIn) -> None:
    link = patient_link(GameSettings(driver="siphon", host="127.0.0.1:1"))
    with pytest.raises(LinkError, match=r"127\.0\.0\.1:1: expected it to answer, found nobody"):
        link.attach(0.2)
    link.close()


def test_another_address_demands_the_token(
    served: ServedStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GameError, match=r"expected `token_file` for 0\.0\.0\.0:0"):
        SiphonServer(ServingOptions("0.0.0.0:0"), served.game.living_pid)
    token = tmp_path / "token"
    serving = ServingOptions("0.0.0.0:0", token_file=token, display=served.serving.display)
    server = SiphonServer(serving, served.game.living_pid, captured_slots=True)
    host = f"127.0.0.1:{server.port}"
    try:
        with SiphonClient(host) as stock:
            assert "token" in stock.get_server_status()["message"]
            assert not stock.input_key_tap(["w"])["success"]
            streamed = stock.stream_frames(max_frames=1)
            assert streamed["frames_received"] == 0
        link = patient_link(replace(served.settings, host=host, token_file=str(token)))
        link.attach(PATIENCE_S)
        assert can_read(link)
        link.close()
        other = tmp_path / "other"
        other.write_text("guess\n")
        other.chmod(0o600)
        stranger = patient_link(replace(served.settings, host=host, token_file=str(other)))
        with pytest.raises(RefusedError, match="token"):
            stranger.attach(PATIENCE_S)
        stranger.close()
    finally:
        server.close()
    secret = token.read_text().strip()
    assert secret not in caplog.text + "".join(capsys.readouterr())


def test_a_bare_remote_server_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        patient_link(GameSettings(driver="siphon", host="gamepc:50051")).close()
        assert "without a token and without encryption" in caplog.text
        caplog.clear()
        patient_link(GameSettings(driver="siphon", host="localhost:50051")).close()
    assert not caplog.records


def test_an_encrypted_server_talks_to_whoever_knows_its_certificate(served: ServedStandIn, tmp_path: Path) -> None:
    host = own_address()
    certificate, key = make_certificate(tmp_path, f"IP:{host}")
    others, others_key = make_certificate(tmp_path, "DNS:elsewhere")
    with pytest.raises(GameError, match="together"):
        SiphonServer(ServingOptions("127.0.0.1:0", certificate=certificate), served.game.living_pid)
    token = tmp_path / "token"
    serving = ServingOptions(f"{host}:0", token, certificate, key, display=served.serving.display)
    for faulty in (
        replace(serving, key=others_key),
        replace(serving, certificate=key),
        replace(serving, certificate=tmp_path / "none"),
    ):
        with pytest.raises(GameError, match="a certificate and its own key"):
            SiphonServer(faulty, served.game.living_pid)
    server = SiphonServer(serving, served.game.living_pid, captured_slots=True)
    host = server.address
    settings = replace(served.settings, host=host, token_file=str(token))
    try:
        link = patient_link(replace(settings, certificate=str(certificate)))
        link.attach(PATIENCE_S)
        assert can_read(link)
        link.close()
        for known, told in (("", "`certificate` if it encrypts"), (str(others), "made out to this host")):
            stranger = patient_link(replace(settings, certificate=known))
            with pytest.raises(LinkError, match=told):
                stranger.attach(0.1)
            stranger.close()
        with pytest.raises(GameError, match="expected the Siphon server's certificate"):
            patient_link(replace(settings, certificate=str(key)))
    finally:
        server.close()


def test_server_end_releases_keys_and_ends_streams(served: ServedStandIn, device: XTestDevice) -> None:
    server = SiphonServer(
        ServingOptions("127.0.0.1:0", display=served.serving.display), served.game.living_pid, captured_slots=True
    )
    link = patient_link(replace(served.settings, host=server.address))
    link.attach(PATIENCE_S)
    link.keys.press("w")
    frames = link.frames()
    next(frames)
    server.close()
    assert device.down() == ()
    with pytest.raises(LinkError):
        # What was under way may still come.
        list(frames)
    link.close()
