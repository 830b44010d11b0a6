"""Speed: training beside stable-baselines3 and stock RLlib, the simulator, a tick, whole commands.

    python benchmarks/bench.py train|sim|tick|commands --rounds 5

Each result is shown next to the machine's own limit, measured in the same rounds. `commands` measures a fight drawn
with nothing compiled, and a whole curriculum.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from commands import bench_commands
from common import make_parser, report
from speed import bench_composed, bench_simulation, bench_single_tick

_MAIN = "from soulsgraph.cli import main; main()"
_WATCH = ("watch", "iudex-phase1-best-0", "--seconds", "1", "--file", "fight.png")
_COLD = "a fight drawn, nothing compiled"
_COMMANDS = {_COLD: _WATCH, "a fight drawn": _WATCH, "curriculum": ("curriculum", "--run", "run")}


def run_benchmark(what: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Run one benchmark by its name; return results as they come."""
    if what == "sim":
        for lanes, ticks in ((256, 2_000), (1, 20_000)):
            yield from bench_simulation(lanes, ticks, rounds)
    elif what == "tick":
        yield bench_single_tick(10_000)
        yield bench_composed(256, 300, rounds)
    elif what == "commands":
        yield from bench_commands(_MAIN, _COMMANDS, _COLD, rounds)
    else:
        # Imported here: torch, ray and stable-baselines3 take seconds.
        from training import bench_training

        for skill, (lanes, steps) in product(("dodge", "heal_attack"), ((1, 3_000), (32, 10_000))):
            yield from bench_training(skill, lanes, steps, rounds)


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: medians, the lowest and highest round, CPU time and wall time."""
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


def main() -> None:
    """Measure, print."""
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("train", "sim", "tick", "commands"))
    asked = parser.parse_args()
    report(run_benchmark(asked.what, asked.rounds), describe, asked)


if __name__ == "__main__":
    main()
