"""A stand-in game as a child process."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.standin.launch import StandInOptions

_END_S = 60.0


class StandInProcess:
    """Run a stand-in that ends with this process, or with the context.

    Raises:
        GameError: if it does not start, with its output.
    """

    def __init__(self, options: StandInOptions) -> None:
        command, pipe = replace(options, until_eof=True).command(), subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        assert self._child.stdout is not None
        printed = self._child.stdout.readline()
        if not printed.startswith("{"):
            with self._child:
                printed += self._child.stdout.read()
            raise GameError(f"the stand-in: expected a start, found its end: {printed}")
        self.pid: int = json.loads(printed)["pid"]

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code, negative for the signal that ended it."""
        return self._child.wait(timeout_s)

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._child:
            self._child.terminate()
            try:
                self._child.wait(_END_S)
            except subprocess.TimeoutExpired:
                # It may have been stopped.
                self._child.kill()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
