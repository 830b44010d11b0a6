"""`bench sim`, `bench tick`, `bench read` and `bench reset` time what fights cost.

They are the simulator, a tick of the composed agent, a reading of memory, and the resets of fights with the stand-in
game, on a virtual screen of its own, by phase.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from soulsgraph.bench.limits import MemorySweep, spread
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import ScriptedPlay, Uniform, engaging
from soulsgraph_envs.core.errors import EpisodeLostError
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import episode_seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, Raw
from soulsgraph_envs.games.memory.address_map import load_address_map
from soulsgraph_envs.games.memory.link import attach_game
from soulsgraph_envs.games.opening import make_game, open_live_game
from soulsgraph_envs.games.realtime.game import LiveGame
from soulsgraph_envs.games.realtime.link import GameSettings, load_games
from soulsgraph_envs.games.standin.memory import still_game
from soulsgraph_envs.games.standin.options import StandInOptions
from soulsgraph_envs.games.standin.process import StandInProcess
from soulsgraph_envs.skills import SKILL_NAMES, Skill, make_skill
from soulsgraph_envs.testing.keys import virtual_screen
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, Weights, layer_names_at

HIDDEN = (64, 64)
_SCENARIO = "iudex-phase1"
_WARM_UP = 100


class RandomFights:
    """Drive a simulator's lanes with random controls; restart a lane where the player or boss is beaten."""

    def __init__(self, lanes: int) -> None:
        self.lane_ticks = self.resets = 0
        self._scenario, self._game = load_scenario(_SCENARIO), make_game(lanes=lanes)
        random = np.random.default_rng(0)
        self._controls = random.integers(0, int(ALL_CONTROLS) + 1, (256, lanes), dtype=np.uint32)
        self._reset(np.arange(lanes))

    def run(self, ticks: int) -> None:
        """Advance every lane by a number of control ticks."""
        player_hp, player_hp_max, boss_hp = int(Raw.PLAYER_HP), int(Raw.PLAYER_HP_MAX), int(Raw.BOSS_HP)
        for tick in range(ticks):
            raw = self._game.step(self._controls[tick % len(self._controls)])
            dead = raw[:, player_hp] < self._scenario.death_hp_ratio * raw[:, player_hp_max]
            ended = np.flatnonzero(dead | (raw[:, boss_hp] < self._scenario.boss_hp[1]))
            if ended.size:
                self._reset(ended)
        self.lane_ticks += ticks * self._game.lanes

    def _reset(self, lanes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._game.reset(lanes, self._scenario, episode_seeds(0, lanes, self.resets))
        self.resets += len(lanes)


def bench_simulation(lanes: int, ticks: int, rounds: int) -> list[dict[str, Any]]:
    """Measure lane ticks (0.1 s of fight) per CPU second, and those of a sweep over the lanes' memory."""
    fights, sweep, unit = RandomFights(lanes), MemorySweep(lanes), "lane ticks"
    fights.run(50)
    contenders = [
        Contender(f"simulator, {lanes} lanes", unit, partial(fights.run, ticks), lambda: fights.lane_ticks),
        Contender(f"limit: memory of {lanes} lanes", unit, partial(sweep.run, ticks), lambda: sweep.lane_ticks),
    ]
    interleave(rounds, contenders)
    ours, limit = (contender.to_dict() for contender in contenders)
    return [ours | {"resets": fights.resets}, limit]


def untrained_network(skill: Skill, scenario: Scenario, random: np.random.Generator) -> FrozenNetwork:
    """Return a network of the paper's sizes with random weights, as expensive as a trained one."""
    sizes = (skill.observation.size, *HIDDEN, len(skill.actions))
    weights: Weights = {MEAN: np.zeros(sizes[0]), DEVIATION: np.ones(sizes[0])}
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight, bias = layer_names_at(index)
        weights[weight] = random.normal(0.0, fan_in**-0.5, (fan_out, fan_in))
        weights[bias] = np.zeros(fan_out)
    return FrozenNetwork.of(skill, scenario, weights, 10.0)


class ComposedFights:
    """Play the five-skill graph in every lane; restart a lane where its episode ends."""

    def __init__(self, lanes: int) -> None:
        loaded = load_scenario(_SCENARIO)
        skills = tuple(make_skill(name) for name in SKILL_NAMES)
        random = np.random.default_rng(0)
        networks = {skill.name: untrained_network(skill, loaded, random) for skill in skills}
        self.rollout = Agent(loaded, skills, networks).rollout(make_game(lanes=lanes))
        self.episodes = 0
        self._begin(np.arange(lanes))

    @property
    def lane_ticks(self) -> int:
        """Control ticks so far, summed over the lanes."""
        return self.rollout.ticks * self.rollout.combat.lanes

    def run(self, ticks: int) -> None:
        """Advance every lane by a number of control ticks."""
        for _ in range(ticks):
            self.rollout.tick()
            self.begin_ended()

    def begin_ended(self) -> None:
        """Begin new episodes where one ended with the last tick."""
        ended = np.flatnonzero(self.rollout.combat.ended)
        if ended.size:
            self._begin(ended)

    def _begin(self, lanes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self.rollout.begin(lanes, episode_seeds(0, lanes, self.episodes))
        self.episodes += len(lanes)


def bench_single_tick(ticks: int) -> dict[str, Any]:
    """Measure single ticks at one lane, in milliseconds of CPU time and of wall time."""
    fights = ComposedFights(1)
    times = _times_ms(fights.rollout.tick, ticks, fights.begin_ended)
    return {"name": "composed agent, 1 lane, one tick", "ticks": ticks, **times}


def bench_composed(lanes: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Measure lane ticks of composed evaluation per CPU second, resets included."""
    fights = ComposedFights(lanes)
    name, run = f"composed agent, {lanes} lanes", partial(fights.run, ticks)
    contender = Contender(name, "lane ticks", run, lambda: fights.lane_ticks)
    fights.rollout.tick()
    interleave(rounds, [contender])
    return contender.to_dict()


def bench_reading(map_name: str, readings: int) -> dict[str, Any]:
    """Measure whole readings, in milliseconds of CPU time and of wall time."""
    address_map = load_address_map(map_name)
    with still_game(map_name) as process:
        game = attach_game(GameSettings(pid=process.pid), address_map)
        times = _times_ms(game.memory.read, readings)
        game.reader.close()
    name = f"one reading of {len(address_map.readable())} fields, {map_name}"
    return {"name": name, "readings": readings, **times}


def _times_ms(call: Callable[[], object], count: int, afterwards: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return quantiles of the times that a call takes, without those of `afterwards`, which follows each."""
    times_ms = []
    for _ in range(count + _WARM_UP):
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        call()
        times_ms.append(((time.process_time_ns() - cpu) / 1e6, (time.perf_counter_ns() - wall) / 1e6))
        afterwards()
    cpu_ms, wall_ms = zip(*times_ms[_WARM_UP:], strict=True)
    return {"cpu_ms": quantiles(cpu_ms), "wall_ms": quantiles(wall_ms)}


@dataclass
class Contender:
    """What is measured: `run` does one round of it, `units` and `updates` return how many were done so far in all.

    Rates are in units per CPU second and per wall second.
    """

    name: str
    unit: str
    run: Callable[[], None]
    units: Callable[[], int]
    updates: Callable[[], int] = lambda: 0
    per_cpu_s: list[float] = field(default_factory=list)
    per_wall_s: list[float] = field(default_factory=list)
    measured_units: int = 0
    measured_updates: int = 0

    def measure(self) -> None:
        """Time one round."""
        units, updates = self.units(), self.updates()
        cpu, wall = time.process_time(), time.perf_counter()
        self.run()
        done, cpu_s, wall_s = self.units() - units, time.process_time() - cpu, time.perf_counter() - wall
        self.per_cpu_s.append(done / cpu_s)
        self.per_wall_s.append(done / wall_s)
        self.measured_units += done
        self.measured_updates += self.updates() - updates

    def to_dict(self) -> dict[str, Any]:
        """Return medians and spread as plain values, with the units an update where there were updates."""
        rates, updates = self.per_cpu_s, self.measured_updates
        return {
            "name": self.name,
            "unit": self.unit,
            "rounds": len(rates),
            "per_cpu_s": spread(rates),
            "per_wall_s": {"median": median(self.per_wall_s)},
            **({"steps_per_update": self.measured_units / updates} if updates else {}),
        }


def interleave(rounds: int, contenders: Sequence[Contender]) -> None:
    """Measure every contender once a round, so that a slow phase of the machine affects all of them."""
    for _ in range(rounds):
        for contender in contenders:
            contender.measure()


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return median, 99th and 99.9th percentile and the highest of some values."""
    p99, p999 = np.quantile(values, (0.99, 0.999), method="higher")
    return {"median": median(values), "p99": float(p99), "p99.9": float(p999), "highest": max(values)}


_MAP = StandInOptions().map
_TICKS, _LANE = 60, np.zeros(1, np.int64)
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
    """Measure resets between fights and those that reload: at speed 1, then with a hastened clock, and at speed 3."""
    for reload in (False, True):
        for speed, address_map in ((1.0, _MAP), (1.0, "stand-in"), (3.0, _MAP)):
            yield bench_resets(speed, fights, reload, address_map)


def _play_resets(game: LiveGame, fights: int) -> tuple[list[dict[str, float]], int]:
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
