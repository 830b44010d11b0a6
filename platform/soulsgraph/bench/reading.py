"""`bench read`: one whole look at a game in another process, every field of an address map."""

from __future__ import annotations

import time
from typing import Any

from soulsgraph.bench.timing import quantiles
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import load_address_map
from soulsgraph_envs.memory.attaching import attach_game
from soulsgraph_envs.standin.still_game import still_game

_WARM_UP = 100


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
