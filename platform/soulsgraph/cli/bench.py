"""The command that measures speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tyro.conf import Positional

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.runs.plan import check_range

_MAIN = "from soulsgraph.cli import main; main()"


def bench(
    what: Positional[Literal["train", "sim", "tick", "commands"]],
    output: OutputOptions = DEFAULT_OUTPUT,
    rounds: int = 3,
) -> None:
    """Measure speed: training beside stable-baselines3 and stock RLlib, the simulator, a tick, whole commands.

    Beside training and the simulator stands what the machine itself can do, measured in the same rounds.

    Args:
        what: train: skill steps a CPU second; sim: lane ticks a CPU second; tick: milliseconds a tick;
            commands: wall and CPU seconds, and memory, of a fight drawn with nothing compiled and of a whole
            curriculum.
        rounds: Interleaved rounds; medians and spread are reported.
    """
    from soulsgraph.bench import describe, run_benchmark
    from soulsgraph.results.files import describe_run
    from soulsgraph.runs.workers import precompile

    check_range("rounds", rounds, 1, 1000)
    precompile(output.console)
    origin, results = describe_run(), []
    measured = _whole_commands(rounds) if what == "commands" else run_benchmark(what, rounds)
    for result in measured:
        output.console.print(describe(result), soft_wrap=True)
        results.append(result)
    output.show({**origin, "results": results})


def _whole_commands(rounds: int) -> Iterator[dict[str, Any]]:
    from soulsgraph.bench.commands import bench_commands

    watch = ("watch", "iudex-phase1-best-0", "--seconds", "1", "--png", "fight.png")
    commands = {
        "a fight drawn, nothing compiled": watch,
        "a fight drawn": watch,
        "curriculum --preset best": ("curriculum", "--preset", "best", "--run", "run"),
    }
    return bench_commands(_MAIN, commands, "a fight drawn, nothing compiled", rounds)
