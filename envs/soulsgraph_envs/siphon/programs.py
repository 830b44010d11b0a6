"""Run a program for a client of a server whose user has allowed that."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

from soulsgraph_envs.errors import GameError


def run_program(program: Sequence[str], folder: str, timeout_s: float, capture: bool) -> dict[str, Any]:
    """Run a program to its end, without a shell, and give the values of ExecuteCommand's answer.

    Raises:
        GameError: if it does not end in time; 0 waits for ever.
        OSError: if it cannot be started.
    """
    output = subprocess.PIPE if capture else subprocess.DEVNULL
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            program,
            cwd=folder or None,
            timeout=timeout_s or None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GameError(f"{program[0]}: expected it to end within {timeout_s:g} s, it did not; allow more.") from error
    return {
        "success": done.returncode == 0,
        "exit_code": done.returncode,
        "stdout_output": (done.stdout or b"").decode(errors="replace"),
        "stderr_output": (done.stderr or b"").decode(errors="replace"),
        "execution_time_ms": round((time.perf_counter() - begun) * 1000),
    }
