"""`soulsgraph game siphon`: from the command to a fight through the games file that it writes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

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
        command = [str(PROGRAM), "game", "siphon", "--address", "127.0.0.1:0", "--display", display, "--json"]
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


def test_no_game_is_started_for_an_address_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soulsgraph.cli.games._stand_in", lambda *_: pytest.fail("a game was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SoulsGraphError, match=address):
            serve_siphon(serving=ServingOptions(address))
