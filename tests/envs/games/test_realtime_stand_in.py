"""A driver against a real program: its contract, and a stand-in that crashes or hangs, through memory and keys."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from fakes.waiting import undisturbed
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.opening import open_live_game
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.games.x11 import XTestDevice
from soulsgraph_envs.testing import check_game

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads another process's memory as Linux gives it"),
]
#: Walk about, look around and strike: whatever key is lost, one of these shows it.
ROUND = [Control.FORWARD] * 4 + [Control.BACK] * 3 + [Control.ROLL | Control.LEFT, *[Control.CAMERA_LEFT] * 7]


@contextmanager
def stand_in(folder: Path, display: str) -> Iterator[tuple[StandInProcess, LiveGame]]:
    """Run a stand-in and open it; one that its driver launches in its place ends as well."""
    file = folder / "games.toml"
    with StandInProcess(StandInOptions(display=display, settings=file, speed=2.0)) as process:
        with closing(open_live_game(load_games(file)[0])) as game:
            yield process, game
        launched = load_games(file)[0].pid
        if launched != process.pid:
            with suppress(ProcessLookupError):
                os.kill(launched, signal.SIGTERM)


def test_memory_driver_keeps_the_contract_of_a_game(tmp_path: Path) -> None:
    def check() -> None:
        with virtual_screen() as display, stand_in(tmp_path, display) as (_, game):
            check_game(lambda _: game, lanes=1)

    undisturbed(check)


@pytest.mark.parametrize("fault", [signal.SIGSEGV, signal.SIGSTOP])
def test_a_crash_and_a_hang_end_in_a_lost_episode_and_a_recovery(fault: signal.Signals, tmp_path: Path) -> None:
    with virtual_screen() as display, stand_in(tmp_path, display) as (process, game):
        scenario, seeds = load_scenario("iudex-phase1"), derive_seeds(np.zeros(1), 1)

        def play(rounds: int) -> None:
            for controls in ROUND * rounds:
                game.step(np.full(1, int(controls), np.uint32))

        def begin() -> None:
            game.reset(np.zeros(1, np.int64), scenario, seeds)

        undisturbed(lambda: (begin(), play(1)))
        os.kill(process.pid, fault)
        with pytest.raises(EpisodeLostError):
            play(6)
        with closing(XTestDevice(display)) as keyboard:
            assert keyboard.down() == ()

        def plays_on() -> bool:
            undisturbed(begin)
            with suppress(EpisodeLostError):
                play(1)
                return True
            return False

        assert any(undisturbed(plays_on) for _ in range(20))
