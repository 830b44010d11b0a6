"""Time the simulator and a tick of the composed agent.

Beside a benchmark, in the same rounds, stands the bare work: an update's products by numpy's BLAS, a sweep over memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, Raw
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator.layout import FRAMES_PER_S, LANE
from soulsgraph_envs.skills import SKILL_NAMES, Skill, make_skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, Weights, layer_names_at

HIDDEN = (64, 64)
_SCENARIO = "iudex-phase1"
_WARM_UP = 100
_TICKS_PER_S = 10


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
        self._game.reset(lanes, self._scenario, derive_seeds(0, lanes, self.resets))
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
        self.rollout.begin(lanes, derive_seeds(0, lanes, self.episodes))
        self.episodes += len(lanes)


def bench_single_tick(ticks: int) -> dict[str, Any]:
    """Measure single ticks at one lane, in milliseconds of CPU time and of wall time."""
    fights = ComposedFights(1)
    times = times_ms(fights.rollout.tick, ticks, fights.begin_ended)
    return {"name": "composed agent, 1 lane, one tick", "ticks": ticks, **times}


def bench_composed(lanes: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Measure lane ticks of composed evaluation per CPU second, resets included."""
    fights = ComposedFights(lanes)
    name, run = f"composed agent, {lanes} lanes", partial(fights.run, ticks)
    contender = Contender(name, "lane ticks", run, lambda: fights.lane_ticks)
    fights.rollout.tick()
    interleave(rounds, [contender])
    return contender.to_dict()


def times_ms(call: Callable[[], object], count: int, afterwards: Callable[[], None] = lambda: None) -> dict[str, Any]:
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


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of measurements, the lowest and the highest."""
    return {"median": median(values), "lowest": min(values), "highest": max(values)}


class UpdateProducts:
    """The matrix products of DQN updates alone, by numpy's BLAS: forward twice, and backward.

    `sizes` are those of the network's layers, inputs and actions included.
    """

    def __init__(self, sizes: Sequence[int], batch_size: int) -> None:
        random = np.random.default_rng(0)
        self.done = 0
        shapes = [
            ((batch_size, inputs), (inputs, outputs), (batch_size, outputs)) for inputs, outputs in pairwise(sizes)
        ]
        self._layers = [[random.random(shape, np.float32) for shape in layer] for layer in shapes]

    def run(self, updates: int) -> None:
        """Compute the products of this number of updates."""
        for _ in range(updates):
            for rows, weight, result in self._layers:
                np.matmul(rows, weight, out=result)
                np.matmul(rows, weight, out=result)
                rows.T @ result
            for _, weight, result in self._layers[1:]:
                result @ weight.T
        self.done += updates


class MemorySweep:
    """Read and write what the simulator keeps of each lane, once a frame."""

    def __init__(self, lanes: int) -> None:
        self.lane_ticks, self._lanes = 0, lanes
        self._values = np.zeros(lanes * LANE.itemsize // 4, np.float32)

    def run(self, ticks: int) -> None:
        """Sweep over every lane for a number of control ticks."""
        for _ in range(ticks * FRAMES_PER_S // _TICKS_PER_S):
            np.add(self._values, np.float32(1.0), out=self._values)
        self.lane_ticks += ticks * self._lanes
