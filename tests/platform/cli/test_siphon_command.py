"""`soulsgraph serve-siphon`: from the command to a fight through the games file that it writes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S, undisturbed
from soulsgraph.cli.games import serve_siphon
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.memory_reader import is_running
from soulsgraph_envs.games.opening import open_live_game
from soulsgraph_envs.games.standin.launch import ServingOptions
from soulsgraph_envs.games.x11 import XTestDevice

PROGRAM = Path(sys.executable).with_name("soulsgraph")


@pytest.mark.slow
def test_a_fight_through_the_served_stand_in(tmp_path: Path) -> None:
    games = tmp_path / "games.toml"
    with virtual_screen() as display:
        command = [str(PROGRAM), "serve-siphon", "--address", "127.0.0.1:0", "--display", display, "--json"]
        with subprocess.Popen([*command, "--settings", str(games)], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                ready = json.loads(server.stdout.readline())["ready"]
                device = XTestDevice(display)
                assert device.down() == ()
                undisturbed(lambda: fight(games))
                server.terminate()
                assert server.wait(PATIENCE_S) == 0
                assert device.down() == ()
                assert not is_running(ready["pid"])
                device.close()
            finally:
                server.terminate()


def fight(games: Path) -> None:
    (settings,) = load_games(games)
    assert settings.driver == "siphon"
    game = open_live_game(settings)
    try:
        raw = game.reset(np.array([0]), load_scenario("iudex-phase1"), np.array([5], np.uint64)).copy()
        for _ in range(10):
            moved = game.step(np.array([Control.BACK], np.uint32))
        assert np.hypot(*(moved - raw)[0, [Raw.PLAYER_X, Raw.PLAYER_Y]]) > 0.5
        assert moved[0, Raw.FLASKS] == raw[0, Raw.FLASKS] == 1.0
    finally:
        game.close()


@pytest.mark.parametrize(
    ("serving", "options", "expected"),
    [
        (ServingOptions("0.0.0.0:0"), {}, "expected `token_file` for 0.0.0.0:0"),
        (ServingOptions("0.0.0.0"), {}, "expected an address as HOST:PORT"),
        (ServingOptions(key=Path("key.pem")), {}, "expected `certificate` and `key` together"),
        (ServingOptions(), {"pid": 1, "process": "game.exe"}, "expected --pid or --process, found both"),
        (ServingOptions(), {"map": "dark-souls-9"}, "dark-souls-9"),
        (ServingOptions(display=":4242"), {}, "expected an X display"),
    ],
)
def test_what_cannot_be_served_is_told(serving: ServingOptions, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SoulsGraphError, match=expected):
        serve_siphon(serving, **options)


def test_no_game_is_started_for_what_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soulsgraph.cli.games._stand_in", lambda *_: pytest.fail("a game was started"))
    readable = tmp_path / "token"
    readable.write_text("secret")
    readable.chmod(0o644)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = {
            "to be free and of this machine": ServingOptions(f"127.0.0.1:{taken.getsockname()[1]}"),
            "expected mode 600, found 644": ServingOptions("127.0.0.1:0", token_file=readable),
            "expected to make a token file": ServingOptions("127.0.0.1:0", token_file=tmp_path / "none" / "token"),
            "give a certificate and its own key": ServingOptions(
                certificate=tmp_path / "no.pem", key=tmp_path / "no.key"
            ),
        }
        for expected, serving in refused.items():
            with pytest.raises(SoulsGraphError, match=expected):
                serve_siphon(serving)
