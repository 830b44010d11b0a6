"""The benchmarks of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from soulsgraph.runs.progress import Display
from soulsgraph_envs.core.config import Between


@dataclass(frozen=True)
class FleetOptions:
    """What of a fleet is measured, and for how long."""

    parts: tuple[Literal["paced", "streams", "disturbed"], ...] = ("paced", "streams", "disturbed")
    """paced: games in real time, beside a loop that only keeps the time; streams: the gateway, and it and its driver,
    beside a bare server; disturbed: games that play while one of them resets or is frozen."""
    seconds: Annotated[float, Between(1.0, 3600.0)] = 30.0
    """How long each is measured."""
    streams: Annotated[int, Between(1, 10_000)] = 1000
    """Streams of the gateway, each with one chunk a second."""


DEFAULT_FLEET = FleetOptions()


def run_benchmark(
    what: str, rounds: int, folder: Path, display: Display, fleet: FleetOptions
) -> Iterator[dict[str, Any]]:
    """Run one benchmark by its name; return results as they come.

    Efficiency takes as many seeds as there are rounds, and keeps each in the folder; a fleet's journals lie there
    while they are needed.
    """
    # Imported here, as the others below: the command line names the options and needs none of it.
    from soulsgraph.bench.speed import bench_composed, bench_reading, bench_simulation, bench_single_tick

    if what == "sim":
        for lanes, ticks in ((256, 2_000), (1, 20_000)):
            yield from bench_simulation(lanes, ticks, rounds)
    elif what == "tick":
        yield bench_single_tick(10_000)
        yield bench_composed(256, 300, rounds)
    elif what == "read":
        yield from (bench_reading("dark-souls-3-1.15.2", 10_000) for _ in range(rounds))
    elif what == "reset":
        from soulsgraph.bench.speed import bench_all_resets

        yield from bench_all_resets(10 * rounds)
    elif what == "efficiency":
        from soulsgraph.bench.efficiency import bench_efficiency

        yield from bench_efficiency(rounds, folder, display)
    elif what == "fleet":
        yield from _bench_fleet(rounds, folder, fleet)
    elif what == "runners":
        from soulsgraph.bench.training import bench_runners

        for skill, preset in product(("camera", "dodge"), ("fast", "best")):
            yield from bench_runners(skill, preset, 10_000, rounds)
    else:
        # Imported here: torch, ray and stable-baselines3 take seconds.
        from soulsgraph.bench.training import bench_training

        for skill, (lanes, steps) in product(("dodge", "heal_attack"), ((1, 3_000), (32, 10_000))):
            yield from bench_training(skill, lanes, steps, rounds)


def _bench_fleet(rounds: int, folder: Path, options: FleetOptions) -> Iterator[dict[str, Any]]:
    from soulsgraph.bench.fleet_driver import DriverServer
    from soulsgraph.bench.fleet_games import FLEETS, GAMES, bench_disturbed, bench_paced
    from soulsgraph.bench.fleet_streams import bench_streams

    if "paced" in options.parts:
        yield from (bench_paced(games, speed, options.seconds, rounds, folder) for games, speed in FLEETS)
    if "streams" in options.parts:
        yield from bench_streams(options.streams, options.seconds, rounds, folder, DriverServer)
    if "disturbed" in options.parts:
        yield from bench_disturbed(GAMES, rounds, folder)


def _describe_fleet(result: dict[str, Any]) -> str:
    rounds = f"{result['rounds']} rounds; load {result['load']:.1f}"
    if "share_of_bare_ticks" in result:
        share, late, cpu = (
            result[name] for name in ("share_of_bare_ticks", "lateness_p99_beyond_bare_ms", "cpu_ms_a_tick")
        )
        return (
            f"{result['name']}: {share['median']:.1%} of a bare loop's ticks ({share['lowest']:.1%} to "
            f"{share['highest']:.1%}), p99 {late['median']:+.2f} ms beside it, {cpu['median']:.2f} ms CPU a tick "
            f"({cpu['lowest']:.2f} to {cpu['highest']:.2f}); {rounds}"
        )
    if "others_ticks" in result:
        ticks, learned = result["others_ticks"], result["learned_a_game"]
        line = (
            f"{result['name']}: the others' ticks {ticks['median']:.1%} of before ({ticks['lowest']:.1%} to "
            f"{ticks['highest']:.1%}), learned of each that plays {learned['median']:.1%} ({learned['lowest']:.1%} to "
            f"{learned['highest']:.1%})"
        )
        if "reported_after_s" in result:
            line += f", reported after {result['reported_after_s']['highest']:.1f} s at most"
        return f"{line}; {rounds}"
    cores = result["cores"]
    line = (
        f"{result['name']}, {result['streams']:,} streams: {cores['median']:.2f} of a core ({cores['lowest']:.2f} to "
    )
    line += f"{cores['highest']:.2f})"
    if "to_bare" in result:
        beyond = result["beyond_bare_ms_a_chunk"]["median"]
        line += f", {result['to_bare']['median']:.2f} times the bare server's, {beyond:.2f} ms a chunk beyond it"
    if "queue_age_p99_ms" in result["measured"][0]:
        age = median(one["queue_age_p99_ms"] for one in result["measured"])
        refused = sum(one["refused_decisions"] for one in result["measured"])
        line += f"; queue age p99 {age:,.0f} ms, {refused:,.0f} decisions refused"
    return f"{line}; {rounds}"


def _describe_resets(result: dict[str, Any]) -> str:
    whole, ours = result["whole_s"], result["ours_s"]
    phases = ", ".join(f"{name} {one['median']:.3f}" for name, one in result["phases_s"].items())
    return (
        f"{result['name']}, {result['map']}, {result['fights']} fights: "
        f"median {whole['median']:.3f} s, mean {whole['mean']:.3f}; "
        f"without what the game alone decides {ours['median']:.3f} s, mean {ours['mean']:.3f}; "
        f"medians by phase: {phases}; {result['lost']} lost; load {result['load']:.1f}"
    )


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: medians, the lowest and highest round, CPU time and wall time."""
    if "measured" in result:
        return _describe_fleet(result)
    if "phases_s" in result:
        return _describe_resets(result)
    if "start_cpu_s" in result:
        cpu = result["start_cpu_s"]
        return (
            f"{result['name']}: {cpu['median']:.2f} CPU seconds ({cpu['lowest']:.2f} to {cpu['highest']:.2f} in "
            f"{result['rounds']} rounds); load {result['load']:.1f}"
        )
    if "first_line_s" in result:
        wall, cpu, memory = (result[name]["median"] for name in ("wall_s", "cpu_s", "memory_mib"))
        first, second = (result[name]["median"] for name in ("first_line_s", "second_line_s"))
        return (
            f"{result['name']}: {wall:.1f} s ({result['wall_s']['lowest']:.1f} to {result['wall_s']['highest']:.1f} in "
            f"{result['rounds']} rounds), {cpu:.1f} CPU seconds, first line after {first:.1f} s, second after "
            f"{second:.1f}, {memory:,.0f} MiB; load {result['load']:.1f}"
        )
    place = f"{result['skill']}, {result['lanes']} lanes, " if "skill" in result else ""
    place = f"{result['skill']}, preset {result['preset']}, " if "preset" in result else place
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
    if "driver_cpu" in result:
        share = result["driver_cpu"]
        notes += f"; {share['median']:.2f} times the driver's CPU time without ({share['lowest']:.2f} to "
        notes += f"{share['highest']:.2f})"
    return (
        f"{place}{result['name']}: {cpu['median']:,.0f} {result['unit']} per CPU second "
        f"({cpu['lowest']:,.0f} to {cpu['highest']:,.0f} in {result['rounds']} rounds), "
        f"{result['per_wall_s']['median']:,.0f} per wall second{notes}"
    )
