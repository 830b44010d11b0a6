"""`bench reset` times the resets of fights with the stand-in game, on a virtual screen of its own, by phase."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, Uniform, engaging
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.streams import episode_seeds
from soulsgraph_envs.drivers.opening import open_live_game
from soulsgraph_envs.drivers.realtime.game import LiveGame
from soulsgraph_envs.drivers.realtime.link import load_games
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.process import StandInProcess
from soulsgraph_envs.testing.keys import virtual_screen

_MAP = StandInOptions().map
_SCENARIO, _TICKS, _LANE = "iudex-phase1", 60, np.zeros(1, np.int64)
#: Every reset finds a world that was loaded longer ago.
_AT_ONCE_S = 1e-6
#: Phases in which the game alone decides how long they take: moves that end, dying, loading, the fog gate.
GAMES_OWN = ("rest", "reload", "gate", "transition")


def bench_resets(speed: float, fights: int, reload: bool = False, address_map: str = _MAP) -> dict[str, Any]:
    """Measure the resets of some fights at a speed, in seconds of the machine, but for the first; seeds are fixed.

    A fight is broken off after 6 s of the game's time, in whatever move both are. With `reload` every reset kills the
    player, waits for the world to load and passes the fog gate. The address map `stand-in` alone can set the clock.
    """
    with tempfile.TemporaryDirectory() as folder, virtual_screen() as display:
        file = Path(folder) / "games.toml"
        with StandInProcess(StandInOptions(address_map, display=display, settings=file, speed=speed)):
            settings = load_games(file)[0]
            game = open_live_game(replace(settings, reload_after_s=_AT_ONCE_S) if reload else settings)
            try:
                spent, lost = _play(game, fights)
            finally:
                game.close()
    kind = "resets that reload" if reload else "resets between fights"
    return {"name": f"{kind} at speed {speed:g}", "map": address_map, "fights": fights, "lost": lost, **_summary(spent)}


def bench_all_resets(fights: int) -> Iterator[dict[str, Any]]:
    """Measure resets between fights and those that reload: at speed 1, then with a hastened clock, and at speed 3."""
    for reload in (False, True):
        for speed, address_map in ((1.0, _MAP), (1.0, "stand-in"), (3.0, _MAP)):
            yield bench_resets(speed, fights, reload, address_map)


def _play(game: LiveGame, fights: int) -> tuple[list[dict[str, float]], int]:
    """Return each reset's seconds by phase, and how many fights or resets were lost."""
    skills = [make_skill(name) for name in SKILL_NAMES]
    combat = Combat(game, skills, load_scenario(_SCENARIO), Horizon("heal_attack", 10**6))
    random = {name: Uniform(make_skill(name), 1, at) for at, name in enumerate(("dodge", "heal_attack"), 1)}
    rollout = Rollout(combat, ScriptedPlay(engaging() | random))
    spent, lost = list[dict[str, float]](), 0
    for number in range(fights):
        seeds, before = episode_seeds(0, _LANE, number), game.timing().reset_s
        try:
            rollout.begin(_LANE, seeds)
            after = game.timing().reset_s
            spent.append({phase: seconds - before.get(phase, 0.0) for phase, seconds in after.items()})
            while not combat.ended.any() and combat.ticks[0] < _TICKS:
                rollout.tick()
        except EpisodeLostError:
            lost += 1
    return spent[1:], lost


def _summary(spent: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return medians and means of the seconds: of whole resets, of our own share, and by phase."""
    phases = sorted({phase for one in spent for phase in one})
    ours = [sum(seconds for phase, seconds in one.items() if phase not in GAMES_OWN) for one in spent]
    return {
        "whole_s": _middle([sum(one.values()) for one in spent]),
        "ours_s": _middle(ours),
        "phases_s": {phase: _middle([one.get(phase, 0.0) for one in spent]) for phase in phases},
        "load": os.getloadavg()[0],
    }


def _middle(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": median(seconds), "mean": fmean(seconds)}
