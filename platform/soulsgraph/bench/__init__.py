"""The benchmarks of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from soulsgraph.bench.speed import bench_composed, bench_reading, bench_simulation, bench_single_tick
from soulsgraph.progress import Display


def run_benchmark(what: str, rounds: int, folder: Path, display: Display) -> Iterator[dict[str, Any]]:
    """Run one benchmark, `train`, `sim`, `tick`, `read` or `efficiency`, and return its results as they come.

    Efficiency takes as many seeds as there are rounds, and keeps each in the folder.
    """
    if what == "sim":
        for lanes, ticks in ((256, 2_000), (1, 20_000)):
            yield from bench_simulation(lanes, ticks, rounds)
    elif what == "tick":
        yield bench_single_tick(10_000)
        yield bench_composed(256, 300, rounds)
    elif what == "read":
        yield from (bench_reading("dark-souls-3-1.15.2", 10_000) for _ in range(rounds))
    elif what == "efficiency":
        # Imported here, as below.
        from soulsgraph.bench.efficiency import bench_efficiency

        yield from bench_efficiency(rounds, folder, display)
    else:
        # Imported here: torch, ray and stable-baselines3 take seconds.
        from soulsgraph.bench.training import bench_training

        for skill, (lanes, steps) in product(("dodge", "heal_attack"), ((1, 3_000), (32, 10_000))):
            yield from bench_training(skill, lanes, steps, rounds)


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: medians, the lowest and highest round, CPU time and wall time."""
    place = f"{result['skill']}, {result['lanes']} lanes, " if "skill" in result else ""
    if "reached" in result:
        got_there = f"{result['reached']} of {len(result['seeds'])} seeds got there"
        if result["decisions"] is None:
            return f"{result['name']}: {got_there}; all decisions take {result['trained_cpu_s']:,.1f} CPU seconds"
        return (
            f"{result['name']}: median {result['decisions']:,.0f} {result['unit']}, "
            f"{result['cpu_s']:,.1f} CPU seconds; {got_there}"
        )
    if "cpu_ms" in result:
        cpu, wall = result["cpu_ms"], result["wall_ms"]
        return (
            f"{result['name']}: median {cpu['median']:.3f} ms, p99 {cpu['p99']:.3f} ms, "
            f"highest {cpu['highest']:.3f} ms of CPU time; wall p99 {wall['p99']:.3f} ms"
        )
    cpu = result["per_cpu_s"]
    notes = f", {result['steps_per_update']:.2f} steps per update" if "steps_per_update" in result else ""
    return (
        f"{place}{result['name']}: {cpu['median']:,.0f} {result['unit']} per CPU second "
        f"({cpu['lowest']:,.0f} to {cpu['highest']:,.0f} in {result['rounds']} rounds), "
        f"{result['per_wall_s']['median']:,.0f} per wall second{notes}"
    )
