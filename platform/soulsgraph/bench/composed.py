"""`bench tick`: one control tick of the whole composed agent, in one lane and in many."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from soulsgraph.bench.timing import Measurement, interleave, quantiles
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.games import make_game
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import SKILL_NAMES, Skill, make_skill
from soulsgraph_envs.streams import episode_seeds
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.inference import FrozenNetwork

HIDDEN = (64, 64)


def untrained_network(skill: Skill, scenario: Scenario, random: np.random.Generator) -> FrozenNetwork:
    """Return a network of the paper's sizes with random weights: it costs what a trained one costs."""
    sizes = (skill.observation.size, *HIDDEN, len(skill.actions))
    layers = tuple(
        (random.normal(0.0, fan_in**-0.5, (fan_out, fan_in)).astype(np.float32), np.zeros(fan_out, np.float32))
        for fan_in, fan_out in pairwise(sizes)
    )
    observation = skill.observation.bind(scenario)
    mean, deviation = np.zeros(skill.observation.size), np.ones(skill.observation.size)
    return FrozenNetwork(skill.name, observation, mean, deviation, 10.0, layers)


class ComposedFights:
    """Play the five-skill graph in every lane and begin anew where an episode ends."""

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
