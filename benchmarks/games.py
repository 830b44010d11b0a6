"""What a game costs: a whole reading of its memory, and the resets of fights with the stand-in, by phase.

python benchmarks/games.py read|reset --rounds 3

`read`: milliseconds a whole reading of another process. `reset`: seconds of resets, by phase, between two fights and
with the world loaded anew, ten fights a round; the stand-in plays on a virtual screen of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import common
from bench import describe as describe_times
from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from fakes.still_game import still_game
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, Uniform, engaging
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.memory_link import attach_game
from soulsgraph_envs.games.opening import open_live_game
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from speed import times_ms

_SCENARIO = "iudex-phase1"
_MAP = "dark-souls-3-1.15.2"
_TICKS, _LANE = 60, np.zeros(1, np.int64)
#: Every reset finds a world that was loaded longer ago.
_AT_ONCE_S = 1e-6
#: Phases in which the game alone decides how long they take: moves that end, dying, loading, the fog gate.
GAMES_OWN = ("rest", "reload", "gate", "transition")


def bench_reading(map_name: str, readings: int) -> dict[str, Any]:
    """Measure whole readings, in milliseconds of CPU time and of wall time."""
    address_map = load_address_map(map_name)
    with still_game(map_name) as process:
        game = attach_game(GameSettings(pid=process.pid), address_map)
        times = times_ms(game.memory.read, readings)
        game.reader.close()
    name = f"one reading of {len(address_map.readable())} fields, {map_name}"
    return {"name": name, "readings": readings, **times}


def bench_resets(speed: float, fights: int, reload: bool = False, address_map: str = _MAP) -> dict[str, Any]:
    """Measure the resets of some fights at a speed, in seconds of the machine, but for the first; seeds are fixed.

    A fight is broken off after 6 s of the game's time, in whatever move both are. With `reload` every reset kills the
    player, waits for the world to load and passes the fog gate. The address map `stand-in` alone can set the clock.
    """
    with tempfile.TemporaryDirectory() as folder, virtual_screen() as display:
        file = Path(folder) / "games.toml"
        with StandInProcess(StandInOptions(map=address_map, display=display, settings=file, speed=speed)):
            settings = load_games(file)[0]
            game = open_live_game(replace(settings, reload_after_s=_AT_ONCE_S) if reload else settings)
            try:
                spent, lost = _play_resets(game, fights)
            finally:
                game.close()
    kind = "resets that reload" if reload else "resets between fights"
    return {
        "name": f"{kind} at speed {speed:g}",
        "map": address_map,
        "fights": fights,
        "lost": lost,
        **_summary_of_resets(spent),
    }


def bench_all_resets(fights: int) -> Iterator[dict[str, Any]]:
    """Measure resets between fights and those that reload: at speed 1 and 3."""
    for reload in (False, True):
        for speed in (1.0, 3.0):
            yield bench_resets(speed, fights, reload)


def _play_resets(game: LiveGame, fights: int) -> tuple[list[dict[str, float]], int]:
    """Return each reset's seconds by phase, and how many fights or resets were lost."""
    skills = [make_skill(name) for name in SKILL_NAMES]
    combat = Combat(game, skills, load_scenario(_SCENARIO), Horizon("heal_attack", 10**6))
    random = {name: Uniform(make_skill(name), 1, at) for at, name in enumerate(("dodge", "heal_attack"), 1)}
    rollout = Rollout(combat, ScriptedPlay(engaging() | random))
    spent, lost = list[dict[str, float]](), 0
    for number in range(fights):
        seeds, before = derive_seeds(0, _LANE, number), game.timing().reset_s
        try:
            rollout.begin(_LANE, seeds)
            after = game.timing().reset_s
            spent.append({phase: seconds - before.get(phase, 0.0) for phase, seconds in after.items()})
            while not combat.ended.any() and combat.ticks[0] < _TICKS:
                rollout.tick()
        except EpisodeLostError:
            lost += 1
    return spent[1:], lost


def _summary_of_resets(spent: Sequence[Mapping[str, float]]) -> dict[str, Any]:
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


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: medians and means of the seconds, or of the milliseconds of a reading."""
    if "phases_s" not in result:
        return describe_times(result)
    whole, ours = result["whole_s"], result["ours_s"]
    phases = ", ".join(f"{name} {one['median']:.3f}" for name, one in result["phases_s"].items())
    return (
        f"{result['name']}, {result['map']}, {result['fights']} fights: "
        f"median {whole['median']:.3f} s, mean {whole['mean']:.3f}; "
        f"without what the game alone decides {ours['median']:.3f} s, mean {ours['mean']:.3f}; "
        f"medians by phase: {phases}; {result['lost']} lost; load {result['load']:.1f}"
    )


def main() -> None:
    """Measure, print."""
    parser = common.make_parser(__doc__)
    parser.add_argument("what", choices=("read", "reset"))
    asked = parser.parse_args()
    if asked.what == "read":
        common.report((bench_reading("dark-souls-3-1.15.2", 10_000) for _ in range(asked.rounds)), describe, asked)
    else:
        common.report(bench_all_resets(10 * asked.rounds), describe, asked)


if __name__ == "__main__":
    main()
