"""The memory link against a stand-in game: a process, a window and keys of its own."""

import sys
from contextlib import closing
from dataclasses import replace

import pytest

from fakes.keys import FakeDevice
from fakes.stand_in import StandInProcess
from fakes.still_game import still_game
from fakes.waiting import PATIENCE_S, until
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.games.link import GameSettings, Link, LinkError
from soulsgraph_envs.games.memory_link import MemoryLink
from soulsgraph_envs.games.standin.launch import StandInOptions

GAME = "dark-souls-3-1.15.2"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="plays on an X display")


def read_until(link, wanted):
    """Read until a reading meets the condition; return it."""
    return until(lambda: values if wanted(values := link.read()) else None, "a reading of the kind")


def test_link_reads_writes_focuses_and_presses(display):
    settings = GameSettings(display=display)
    with (
        StandInProcess(StandInOptions(display=display)) as game,
        closing(MemoryLink(replace(settings, pid=game.pid))) as link,
    ):
        assert isinstance(link, Link)
        link.attach(PATIENCE_S)
        assert link.game.version == "1.15.2.0"
        link.focus()
        assert link.focused()
        assert link.capture().shape == (450, 800, 3)
        link.write({"no_attack": 1, "no_move": 0, "boss_hp": 800, "flasks": 2})
        values = read_until(link, lambda values: values["boss_hp"] == 800 and values["flasks"] == 2)
        assert values.keys() == link.supplies
        link.keys.press("w")
        before = (values["player_x"], values["player_y"])
        read_until(link, lambda now: abs(now["player_x"] - before[0]) + abs(now["player_y"] - before[1]) > 0.2)
        link.keys.release("w")
        link.close()


def test_link_tells_a_game_that_has_ended_and_finds_the_next():
    with still_game(GAME) as first, still_game(GAME) as second:
        link = MemoryLink(GameSettings(pid=first.pid), open_device=lambda _: FakeDevice())
        with pytest.raises(LinkError, match="attach"):
            link.read()
        link.attach(PATIENCE_S)
        with pytest.raises(UnknownNameError, match="camera_x"):
            link.write({"camera_x": 1.0})
        first.kill()
        first.wait()
        for ask in (link.read, lambda: link.write({"boss_hp": 1}), link.focused, link.focus):
            with pytest.raises(LinkError):
                ask()
        with pytest.raises(LinkError, match=str(first.pid)):
            link.attach(0.1)
        link.attach(PATIENCE_S, process_id=second.pid)
        assert link.read()["boss_name"] == "c5110"
        # From now on that one is the game.
        link.attach(PATIENCE_S)
        assert link.game.reader.pid == second.pid
        link.close()
