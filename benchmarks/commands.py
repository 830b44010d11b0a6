"""Time whole commands from the shell: wall and CPU seconds, first lines, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from speed import spread


def bench_commands(
    code: str, commands: Mapping[str, Sequence[str]], cold: str, rounds: int
) -> Iterator[dict[str, Any]]:
    """Measure whole commands in folders of their own, in interleaved rounds, the one named `cold` uncompiled.

    Every row has wall_s, cpu_s (of all its processes), first_line_s and second_line_s (of what it prints), and
    memory_mib (the most that its processes held together, PSS, read once a second).
    """
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            with TemporaryDirectory() as folder:
                cache = {"NUMBA_CACHE_DIR": f"{folder}/compiled"} if name == cold else {}
                taken[name].append(command_times((code, *words), Path(folder), cache))
    load = os.getloadavg()[0]
    for name, measured in taken.items():
        columns = {column: spread([one[column] for one in measured]) for column in measured[0]}
        yield {"name": name, **columns, "rounds": rounds, "load": load}


def command_times(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds and MiB of a Python that runs code with words in a folder.

    Raises:
        subprocess.CalledProcessError: if it failed.
    """
    begun_s = time.perf_counter()
    output = folder / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", *words],
            cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
        lines_s: list[float] = []
        most, polls = 0.0, 0
        try:
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                lines = output.read_bytes().count(b"\n")
                lines_s += [time.perf_counter() - begun_s] * (lines - len(lines_s))
                if polls % 20 == 0:
                    most = max(most, _memory_mib(process.pid))
                polls += 1
                time.sleep(0.05)
        except BaseException:
            process.kill()
            raise
    wall_s = time.perf_counter() - begun_s
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output.read_text())
    lines_s += [wall_s] * 2
    used = ended[2]
    return {
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "first_line_s": lines_s[0],
        "second_line_s": lines_s[1],
        "memory_mib": most,
    }


def _memory_mib(pid: int) -> float:
    held = 0
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):
                held += process.memory_full_info().pss
    return held / 2**20
