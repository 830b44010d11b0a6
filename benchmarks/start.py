"""CPU seconds that every command takes to start, as its help does, beside Python alone.

python benchmarks/start.py --rounds 3
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import common
from soulsgraph.cli.commands import COMMANDS
from speed import spread

_MAIN = "from soulsgraph.cli import main; main()"
#: Python, and the two libraries that every command about a skill's options needs.
_BARE = {"python alone": "pass", "python importing numba and gymnasium": "import gymnasium, numba"}


def bench_start(code: str, lines: Sequence[tuple[str, ...]], rounds: int) -> Iterator[dict[str, Any]]:
    """Measure command lines: `code` is run by a fresh Python with the words of each, in interleaved rounds."""
    measured: list[tuple[str, tuple[str, ...]]] = [(name, (bare,)) for name, bare in _BARE.items()]
    measured += [(" ".join(words), (code, *words)) for words in lines]
    taken: dict[str, list[float]] = {name: [] for name, _ in measured}
    for _ in range(rounds):
        for name, words in measured:
            taken[name].append(start_cpu_s(words))
    load = os.getloadavg()[0]
    for name, seconds in taken.items():
        yield {"name": name, "start_cpu_s": spread(seconds), "rounds": rounds, "load": load}


def start_cpu_s(words: Sequence[str]) -> float:
    """Return the CPU seconds, user's and system's, of a Python that runs code with words; what it prints is dropped."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-P", "-c", *words], stdin=silent, stdout=silent, stderr=silent)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return used.ru_utime + used.ru_stime


def describe(result: dict[str, Any]) -> str:
    """Return one command's median, lowest and highest round as a line."""
    cpu = result["start_cpu_s"]
    return (
        f"{result['name']}: {cpu['median']:.2f} CPU seconds ({cpu['lowest']:.2f} to {cpu['highest']:.2f} in "
        f"{result['rounds']} rounds); load {result['load']:.1f}"
    )


def main() -> None:
    """Measure, print."""
    asked = common.make_parser(__doc__).parse_args()
    lines = [(*words, "--help") for words in ((), *map(str.split, COMMANDS))]
    common.report(bench_start(_MAIN, lines, asked.rounds), describe, asked)


if __name__ == "__main__":
    main()
