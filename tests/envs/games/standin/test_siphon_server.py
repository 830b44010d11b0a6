"""The Siphon server with a stand-in behind it, called by Siphon's own client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from pysiphon import SiphonClient

from fakes.served_stand_in import ServedStandIn, served_stand_in
from fakes.waiting import until
from soulsgraph_envs.core.config import find
from soulsgraph_envs.games.standin.launch import ServingOptions, StandInOptions
from soulsgraph_envs.games.x11 import XTestDevice

DARK_SOULS = "dark-souls-3-1.15.2"


@pytest.fixture(scope="module")
def served(display: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStandIn]:
    serving = ServingOptions("127.0.0.1:0", display=display, recordings=tmp_path_factory.mktemp("recordings"))
    with served_stand_in(serving, StandInOptions(display=display, at="bonfire")) as served:
        yield served


@pytest.fixture
def client(served: ServedStandIn) -> Iterator[SiphonClient]:
    with SiphonClient(served.server.address) as client:
        assert client.init_all(str(find("attribute file", DARK_SOULS)), wait_time=0.0)
        yield client


def test_what_fails_is_said_in_the_answer(client: SiphonClient) -> None:
    refused = {
        "player_hq": client.get_attribute("player_hq"),
        "int": client.set_attribute("player_hp", 1.0, "float"),
        "whisky": client.input_key_tap(["whisky"]),
        "allow_commands": client.execute_command("true"),
        # A recording stays in the server's folder.
        "out": client.start_recording(["player_hp"], "../out"),
    }
    assert {named: answer["success"] for named, answer in refused.items()} == dict.fromkeys(refused, False)
    assert [named for named, answer in refused.items() if named not in answer["message"]] == []


def test_a_recording_holds_what_happened(client: SiphonClient, tmp_path: Path) -> None:
    started = client.start_recording(["player_hp", "boss_hp"], "mine")
    assert started["success"], started["message"]
    session = started["session_id"]

    def frames() -> int:
        return int(client.get_recording_status(session)["current_frame"])

    # Frames before, while and after the key is down, however slowly a busy machine takes them.
    for pressed in (False, True, False):
        assert client.input_key_toggle("S", pressed)["success"]
        enough = frames() + 3
        until(lambda enough=enough: frames() >= enough)
    assert not client.download_recording(session, str(tmp_path), show_progress=False)
    stopped = client.stop_recording(session)
    assert stopped["success"], stopped["message"]
    assert client.download_recording(session, str(tmp_path), show_progress=False)
    with h5py.File(next(tmp_path.glob("*.h5"))) as file:
        assert file["frames"].shape == (stopped["total_frames"], 450, 800, 4)
        assert list(file["memory_data"].attrs["attribute_names"]) == ["player_hp", "boss_hp"]
        assert (file["memory_data"][:, 1] > 0).all()
        assert np.diff(file["timestamps"][:]).min() >= 0
        assert list(file["inputs"].attrs["key_mapping"]) == ["S"]
        assert 0 < file["inputs"][:, 0].sum() < stopped["total_frames"]


def test_keys_come_up_when_a_client_is_killed(served: ServedStandIn, device: XTestDevice) -> None:
    program = (
        "import sys; from pysiphon import SiphonClient; client = SiphonClient(sys.argv[1]);"
        "print(client.input_key_toggle('W', True)['success'], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, served.server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert device.down() == ("w",)
        child.send_signal(signal.SIGKILL)
    until(lambda: device.down() == ())
