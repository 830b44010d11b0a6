"""A driver against a real program: fights and misbehaviours of the stand-in, through memory and keys."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S, undisturbed
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.scripted import STRIKE, ConstantScript, ScriptedPlay, Uniform, engaging
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.opening import open_live_game
from soulsgraph_envs.games.standin.launch import StandInOptions, StandInProcess
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_envs.testing import check_game

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads another process's memory as Linux gives it"),
]
LANE = np.zeros(1, np.int64)
SPEED = 2.0
#: Walk about, look around and strike: whatever key is lost, one of these shows it.
ROUND = [Control.FORWARD] * 4 + [Control.BACK] * 3 + [Control.ROLL | Control.LEFT, *[Control.CAMERA_LEFT] * 7]


class Table(NamedTuple):
    """A stand-in, its driver and its display."""

    process: StandInProcess
    game: LiveGame
    display: str
    settings: Path

    def reset(self, seed: int = 0) -> None:
        seeds = derive_seeds(np.array([seed]), 1)
        undisturbed(lambda: self.game.reset(LANE, load_scenario("iudex-phase1"), seeds))

    def play(self, ticks: int) -> None:
        for tick in range(ticks):
            self.game.step(np.full(1, int(ROUND[tick % len(ROUND)]), np.uint32))

    def keys_down(self) -> list[int]:
        from Xlib.display import Display

        connection = Display(self.display)
        down: list[int] = [byte for byte in connection.query_keymap() if byte]
        connection.close()
        return down


@contextmanager
def table(folder: Path, **options: object) -> Iterator[Table]:
    file = folder / "games.toml"
    with virtual_screen() as display:
        told = StandInOptions(display=display, settings=file, speed=SPEED, **options)  # type: ignore[arg-type]
        with StandInProcess(told) as process:
            game = open_live_game(load_games(file)[0])
            assert isinstance(game, LiveGame)
            try:
                yield Table(process, game, display, file)
            finally:
                game.close()
                launched = load_games(file)[0].pid
                if launched != process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(launched, signal.SIGTERM)


def test_memory_driver_keeps_the_contract_of_a_game(tmp_path: Path) -> None:
    def check() -> None:
        with table(tmp_path) as t:
            check_game(lambda _: t.game, lanes=1)

    undisturbed(check)


def fight(game: Game, seed: int, ticks: int) -> set[str]:
    """Walk up to the boss and strike, rolling at random, for one episode; return who was hurt."""
    skills = [make_skill(name) for name in SKILL_NAMES]
    scripts = engaging() | {"dodge": Uniform(skills[3], 1, 1), "heal_attack": ConstantScript(STRIKE)}
    combat = Combat(game, skills, load_scenario("iudex-phase1"), Horizon("heal_attack", 10**6))
    play, actions, seeds = ScriptedPlay(scripts), np.zeros((1, 5), np.int64), derive_seeds(np.array([seed]), 1)
    undisturbed(lambda: combat.begin(LANE, seeds))
    play.begin(LANE, seeds)
    with suppress(EpisodeLostError):
        while not combat.ended.any() and combat.ticks[0] < ticks:
            play.act(combat, actions)
            combat.step(actions)
    levels = {"player": (Raw.PLAYER_HP, Raw.PLAYER_HP_MAX), "boss": (Raw.BOSS_HP, Raw.BOSS_HP_MAX)}
    return {who for who, (hp, most) in levels.items() if combat.raw[0, hp] < combat.raw[0, most]}


def test_skills_fight_through_memory_and_keys(tmp_path: Path) -> None:
    fight(Simulator(1), seed=0, ticks=50)  # What is compiled at its first use must not hold up the running fight.
    with table(tmp_path) as t:
        hurt: set[str] = set()
        # In the simulator 0.4 % of such episodes end before both were hurt; a busy machine may lose many more.
        seeds, until_s = count(), time.monotonic() + PATIENCE_S
        while hurt != {"player", "boss"} and time.monotonic() < until_s:
            hurt |= fight(t.game, next(seeds), ticks=300)
        assert hurt == {"player", "boss"}
        assert t.game.unknown_animations() == {}


@pytest.mark.parametrize("misbehaviour", ["crash", "move", "drop 3"])
def test_misbehaviour_ends_in_a_lost_episode_and_a_recovery(misbehaviour: str, tmp_path: Path) -> None:
    with table(tmp_path) as t:
        undisturbed(lambda: (t.reset(), t.play(len(ROUND))))
        t.process.tell(misbehaviour)
        with pytest.raises(EpisodeLostError):
            t.play(6 * len(ROUND))
        assert t.keys_down() == []

        def plays_on() -> bool:
            t.reset(seed=1)
            with suppress(EpisodeLostError):
                t.play(len(ROUND))
                return True
            return False

        # A quick reset may come to its end before the misbehaviour does, and the next episode is lost too.
        assert any(undisturbed(plays_on) for _ in range(20))
