"""The command that measures speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from soulsgraph.bench import DEFAULT_FLEET, FleetOptions
from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.runs.plan import check_range


def bench(
    what: Positional[
        Literal["train", "sim", "tick", "read", "reset", "efficiency", "runners", "fleet", "start", "commands"]
    ],
    output: OutputOptions = DEFAULT_OUTPUT,
    rounds: int = 3,
    out: Path = Path("runs/efficiency"),
    fleet: FleetOptions = DEFAULT_FLEET,
) -> None:
    """Measure speed: training beside stable-baselines3 and stock RLlib, the simulator, a tick, a reading of memory.

    Beside training and the simulator stands what the machine itself can do, measured in the same rounds.

    Args:
        what: train: skill steps a CPU second; sim: lane ticks a CPU second; tick: milliseconds a tick;
            read: milliseconds a whole reading of another process; reset: seconds of resets with the stand-in, by
            phase, between two fights and with its world loaded anew, ten fights a round; efficiency: decisions and
            CPU seconds until the agent wins nine greedy fights in ten, by preset and by stable-baselines3; runners:
            the driver's CPU time with no, one and two remote env runners; fleet: games in real time and a gateway's
            streams, each beside the bare work in the same time; start: CPU seconds of every command's help; commands:
            wall and CPU seconds, and memory, of a fight drawn with nothing compiled and of a whole curriculum.
        rounds: Interleaved rounds; medians and spread are reported. Efficiency has a training seed a round.
        out: Folder for what efficiency measures, a file for each training, and its figure; it goes on with one
            that is there. A fleet's journals lie there meanwhile: it names the disk that is measured.
        fleet: What of a fleet is measured.
    """
    from soulsgraph.bench import describe, run_benchmark
    from soulsgraph.results.files import describe_run
    from soulsgraph.runs.precompile import precompile

    check_range("rounds", rounds, 1, 1000)
    precompile(output.console)
    origin, results = describe_run(), []
    if what in _FROM_THE_SHELL:
        measured = _FROM_THE_SHELL[what](rounds)
    else:
        measured = run_benchmark(what, rounds, out, output.display, fleet)
    for result in measured:
        output.console.print(describe(result), soft_wrap=True)
        results.append(result)
    if what == "efficiency":
        output.console.print(f"measurements and figure in {out}", soft_wrap=True)
    output.show({**origin, "results": results})


def _starts(rounds: int) -> Iterator[dict[str, Any]]:
    from soulsgraph.bench.start import bench_start
    from soulsgraph.cli.front import command_lines

    lines = [(*words, "--help") for words in ((), *command_lines())]
    return bench_start(_MAIN, lines, rounds)


def _whole_commands(rounds: int) -> Iterator[dict[str, Any]]:
    from soulsgraph.bench.start import bench_commands

    watch = ("watch", "iudex-phase1-best-0", "--seconds", "1", "--png", "fight.png")
    commands = {
        "a fight drawn, nothing compiled": watch,
        "a fight drawn": watch,
        "curriculum --preset best": ("curriculum", "--preset", "best", "--run", "run"),
    }
    return bench_commands(_MAIN, commands, "a fight drawn, nothing compiled", rounds)


_MAIN = "from soulsgraph.cli import main; main()"
_FROM_THE_SHELL = {"start": _starts, "commands": _whole_commands}
