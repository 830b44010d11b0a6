"""`bench sim`, `bench tick` and `bench read` time the simulator, a tick of the composed agent, a reading of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from soulsgraph_envs.core.controls import ALL_CONTROLS
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.core.streams import episode_seeds
from soulsgraph_envs.drivers.memory.address_map import load_address_map
from soulsgraph_envs.drivers.memory.game_memory import attach_game
from soulsgraph_envs.drivers.opening import make_game
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.skills import SKILL_NAMES, Skill, make_skill
from soulsgraph_envs.standin.memory import still_game
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.inference import DEVIATION, MEAN, FrozenNetwork, Weights, layer_names_at

HIDDEN = (64, 64)
_WARM_UP = 100


class RandomFights:
    """Drive a simulator's lanes with random controls; restart a lane where the player or boss is beaten."""

    def __init__(self, lanes: int, scenario: str = "iudex-phase1", seed: int = 0) -> None:
        self.lane_ticks = self.resets = 0
        self._scenario, self._seed = load_scenario(scenario), seed
        self._game = make_game(lanes=lanes)
        random = np.random.default_rng(seed)
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
        self._game.reset(lanes, self._scenario, episode_seeds(self._seed, lanes, self.resets))
        self.resets += len(lanes)


def bench_simulation(lanes: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Measure lane ticks (0.1 s of fight) per CPU second."""
    fights = RandomFights(lanes)
    fights.run(50)
    measurement = Measurement(f"simulator, {lanes} lanes", "lane ticks")

    def contender() -> None:
        with measurement.round(lambda: fights.lane_ticks):
            fights.run(ticks)

    interleave(rounds, [contender])
    measurement.notes["resets"] = fights.resets
    return measurement.to_dict()


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

    def __init__(self, lanes: int, scenario: str = "iudex-phase1") -> None:
        loaded = load_scenario(scenario)
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
    cpu_ms, wall_ms = [], []
    for _ in range(ticks + 100):
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        fights.rollout.tick()
        cpu_ms.append((time.process_time_ns() - cpu) / 1e6)
        wall_ms.append((time.perf_counter_ns() - wall) / 1e6)
        fights.begin_ended()
    return {
        "name": "composed agent, 1 lane, one tick",
        "ticks": ticks,
        "cpu_ms": quantiles(cpu_ms[100:]),
        "wall_ms": quantiles(wall_ms[100:]),
    }


def bench_composed(lanes: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Measure lane ticks of composed evaluation per CPU second, resets included."""
    fights = ComposedFights(lanes)
    measurement = Measurement(f"composed agent, {lanes} lanes", "lane ticks")

    def contender() -> None:
        with measurement.round(lambda: fights.lane_ticks):
            for _ in range(ticks):
                fights.rollout.tick()
                fights.begin_ended()

    fights.rollout.tick()
    interleave(rounds, [contender])
    return measurement.to_dict()


def bench_reading(map_name: str, readings: int) -> dict[str, Any]:
    """Measure whole readings, in milliseconds of CPU time and of wall time."""
    address_map = load_address_map(map_name)
    with still_game(map_name) as process:
        game = attach_game(GameSettings(pid=process.pid), address_map)
        cpu_ms, wall_ms = [], []
        for _ in range(readings + _WARM_UP):
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            game.memory.read()
            cpu_ms.append((time.process_time_ns() - cpu) / 1e6)
            wall_ms.append((time.perf_counter_ns() - wall) / 1e6)
        game.reader.close()
    return {
        "name": f"one reading of {len(address_map.readable())} fields, {map_name}",
        "readings": readings,
        "cpu_ms": quantiles(cpu_ms[_WARM_UP:]),
        "wall_ms": quantiles(wall_ms[_WARM_UP:]),
    }


@dataclass
class Measurement:
    """Rates of one contender over several rounds, in units per CPU second and per wall second."""

    name: str
    unit: str
    per_cpu_s: list[float] = field(default_factory=list)
    per_wall_s: list[float] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def round(self, units: Callable[[], float]) -> Iterator[None]:
        """Time one round; `units`, called after it, returns the number of units done so far in all."""
        before, cpu, wall = units(), time.process_time(), time.perf_counter()
        yield
        done = units() - before
        self.per_cpu_s.append(done / (time.process_time() - cpu))
        self.per_wall_s.append(done / (time.perf_counter() - wall))

    def to_dict(self) -> dict[str, Any]:
        """Return medians and spread as plain values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "rounds": len(self.per_cpu_s),
            "per_cpu_s": {
                "median": median(self.per_cpu_s),
                "lowest": min(self.per_cpu_s),
                "highest": max(self.per_cpu_s),
            },
            "per_wall_s": {"median": median(self.per_wall_s)},
            **self.notes,
        }


def interleave(rounds: int, contenders: Sequence[Callable[[], None]]) -> None:
    """Run every contender once a round, so that a slow phase of the machine affects all of them."""
    for _ in range(rounds):
        for contender in contenders:
            contender()


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted values lie."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return median, 99th and 99.9th percentile and the highest of some values."""
    ordered = sorted(values)
    return {
        "median": median(ordered),
        "p99": quantile(ordered, 0.99),
        "p99.9": quantile(ordered, 0.999),
        "highest": ordered[-1],
    }
