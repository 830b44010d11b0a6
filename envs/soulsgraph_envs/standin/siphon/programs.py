"""Run programs for clients of a server whose user has allowed it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from soulsgraph_envs.errors import GameError


def run_program(
    program: Sequence[str], folder: str, timeout_s: float, capture: bool, at_end: Callable[[Callable[[], None]], object]
) -> dict[str, Any]:
    """Run a program to its end, without a shell, and return the values of ExecuteCommand's answer.

    `at_end` registers what is done when the caller no longer waits for the answer: the program and the
    programs that it started are killed.

    Raises:
        GameError: if it does not end in time; 0 waits forever.
        OSError: if it cannot be started.
    """
    output = subprocess.PIPE if capture else subprocess.DEVNULL
    begun = time.perf_counter()
    child = subprocess.Popen(
        program, cwd=folder or None, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    at_end(lambda: _kill(child))
    try:
        written, told = child.communicate(timeout=timeout_s or None)
    except subprocess.TimeoutExpired as error:
        _kill(child)
        child.communicate()
        raise GameError(f"{program[0]}: expected it to end within {timeout_s:g} s, it did not; allow more.") from error
    return {
        "success": child.returncode == 0,
        "exit_code": child.returncode,
        "stdout_output": (written or b"").decode(errors="replace"),
        "stderr_output": (told or b"").decode(errors="replace"),
        "execution_time_ms": round((time.perf_counter() - begun) * 1000),
    }


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a program and its session if it still runs; the id of an ended one may belong to another."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
