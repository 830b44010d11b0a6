"""The Siphon link to a stand-in behind a server, and the failures between them."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
LOCAL = "127.0.0.1:0"


@pytest.fixture(scope="module")
def served(display: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStandIn]:
    serving = ServingOptions(LOCAL, display=display, recordings=tmp_path_factory.mktemp("recordings"))
    with served_stand_in(serving, StandInOptions(display=display)) as served:
        yield served


@pytest.fixture
def link(served: ServedStandIn) -> Iterator[SiphonLink]:
    with closing(patient_link(served.settings)) as link:
        link.attach(PATIENCE_S)
        yield link


def another_server(served: ServedStandIn, *serving: object) -> SiphonServer:
    """Serve the stand-in at another address, with other options."""
    options = ServingOptions(*serving, display=served.serving.display)  # type: ignore[arg-type]
    return SiphonServer(options, served.game.living_pid, captured_slots=True)


class ForeignServer(service.SiphonServiceServicer):
    """A third-party Siphon server, which reports any status, after some time."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s

    def GetServerStatus(self, request: object, context: object) -> object:  # noqa: N802 - the protocol's name
        time.sleep(self.takes_s)
        return ANSWERS["GetServerStatus"](success=True, message="Server is running")


@contextmanager
def foreign_server(takes_s: float = 0.0) -> Iterator[GameSettings]:
    """Run a third-party server, and yield the settings of a link to it."""
    server = grpc.server(ThreadPoolExecutor(1))
    service.add_SiphonServiceServicer_to_server(ForeignServer(takes_s), server)
    port = server.add_insecure_port(LOCAL)
    server.start()
    yield GameSettings(driver="siphon", host=f"127.0.0.1:{port}")
    server.stop(None).wait()


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


def test_the_link_reads_and_takes_pictures(link: SiphonLink) -> None:
    assert isinstance(link, Link)
    reading = link.read()
    assert reading.keys() == link.supplies
    assert (reading["boss_name"], reading["flasks"], reading["boss_hp_max"]) == ("c5110", 3.0, 1037.0)
    assert np.hypot(reading["camera_x"], reading["camera_y"]) == pytest.approx(1.0, abs=0.1)
    assert link.focused()
    assert link.capture().shape == (450, 800, 3)
    with closing(link.frames()) as frames:
        assert next(frames).shape == next(frames).shape == (450, 800, 3)


def test_the_link_writes_in_one_piece_and_by_itself(link: SiphonLink) -> None:
    link.write({"no_ai": 1.0, "no_damage": 1.0})
    link.write({"player_x": 136.0, "player_y": 595.0, "player_z": -68.8, "flasks": 2.0, "player_no_gravity": 1.0})
    until(lambda: link.read()["flasks"] == 2.0)
    reading = link.read()
    assert (reading["player_x"], reading["player_y"]) == pytest.approx((136.0, 595.0), abs=0.5)
    assert reading["player_no_gravity"] == reading["no_ai"] == 1.0
    link.write({"player_no_gravity": 0.0, "no_ai": 0.0, "flasks": 3.0})
    until(lambda: link.read()["no_ai"] == 0.0)
    with pytest.raises(GameError, match="boss_name"):
        link.write({"boss_name": 1.0})


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
    for misbehaviour in ("move", "crash"):
        served.game.tell(misbehaviour)
        until(lambda: not can_read(link))
        # The server finds the game, whatever was launched here.
        link.attach(PATIENCE_S, process_id=4242)
        assert link.read()["boss_hp_max"] == 1037.0


def test_a_server_that_ends_releases_keys_and_its_links_come_back(served: ServedStandIn, device: XTestDevice) -> None:
    server = another_server(served, LOCAL)
    with closing(patient_link(replace(served.settings, host=server.address))) as link:
        link.attach(PATIENCE_S)
        link.keys.press("w")
        frames = link.frames()
        next(frames)
        server.close()
        assert device.down() == ()
        with pytest.raises(LinkError):
            # What was under way may still come.
            list(frames)
        with pytest.raises(LinkError, match="nobody"):
            link.read()
        with pytest.raises(LinkError):
            link.attach(0.3)
        with closing(another_server(served, server.address)):
            link.attach(PATIENCE_S)
            assert can_read(link)


def test_a_server_that_lacks_our_method_is_refused_before_anything_is_sent() -> None:
    with (
        foreign_server() as settings,
        closing(patient_link(settings)) as link,
        pytest.raises(GameError, match="module"),
    ):
        link.attach(PATIENCE_S)


def test_an_answer_is_waited_for_as_long_as_patience_says() -> None:
    with foreign_server(takes_s=1.5 * CALL_TIMEOUT_S) as settings:
        patient, prompt = SiphonCalls(settings, PATIENCE_S), SiphonCalls(settings)
        assert patient.call("GetServerStatus").message == "Server is running"
        with pytest.raises(LinkError, match="GetServerStatus"):
            prompt.call("GetServerStatus")
        for calls in (patient, prompt):
            calls.close()
        # A stream's call is made when its first answer is asked for: in a thread, that may be after the end.
        with pytest.raises(LinkError, match="StreamFrames"):
            next(prompt.stream("StreamFrames"))


def test_another_address_demands_the_token(
    served: ServedStandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GameError, match="token_file"):
        another_server(served, "0.0.0.0:0")
    token = tmp_path / "token"
    with closing(another_server(served, "0.0.0.0:0", token)) as server:
        host = f"127.0.0.1:{server.port}"
        with SiphonClient(host) as stock:
            assert "token" in stock.get_server_status()["message"]
            assert not stock.input_key_tap(["w"])["success"]
            assert stock.stream_frames(max_frames=1)["frames_received"] == 0
        with closing(patient_link(replace(served.settings, host=host, token_file=str(token)))) as link:
            link.attach(PATIENCE_S)
            assert can_read(link)
        other = tmp_path / "other"
        other.write_text("guess\n")
        other.chmod(0o600)
        stranger = patient_link(replace(served.settings, host=host, token_file=str(other)))
        with closing(stranger), pytest.raises(RefusedError, match="token"):
            stranger.attach(PATIENCE_S)
    secret = token.read_text().strip()
    assert secret not in caplog.text + "".join(capsys.readouterr())


def test_a_bare_remote_server_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for host in ("gamepc:50051", "localhost:50051"):
        patient_link(GameSettings(driver="siphon", host=host)).close()
    (warning,) = caplog.records
    assert "gamepc" in warning.getMessage()


@pytest.mark.parametrize(("wrong", "named"), [({"pid": 4242}, "pid"), ({"certificate": "none.pem"}, "certificate")])
def test_settings_that_cannot_be_used_are_refused_before_a_call(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(GameError, match=named):
        patient_link(GameSettings(driver="siphon", **wrong))


def test_an_encrypted_server_talks_to_whoever_knows_its_certificate(served: ServedStandIn, tmp_path: Path) -> None:
    host = own_address()
    certificate, key = make_certificate(tmp_path, f"IP:{host}")
    others, others_key = make_certificate(tmp_path, "DNS:elsewhere")
    token = tmp_path / "token"
    for faulty in ((certificate, None), (certificate, others_key), (key, key), (tmp_path / "none", key)):
        with pytest.raises(GameError, match="certificate"):
            another_server(served, f"{host}:0", token, *faulty)
    with closing(another_server(served, f"{host}:0", token, certificate, key)) as server:
        settings = replace(served.settings, host=server.address, token_file=str(token))
        with closing(patient_link(replace(settings, certificate=str(certificate)))) as link:
            link.attach(PATIENCE_S)
            assert can_read(link)
        for known in ("", str(others)):
            stranger = patient_link(replace(settings, certificate=known))
            with closing(stranger), pytest.raises(LinkError, match="certificate"):
                stranger.attach(0.1)
