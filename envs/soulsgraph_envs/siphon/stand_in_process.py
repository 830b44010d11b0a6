"""The stand-in game as a child of the server, started again when it ends by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType
from typing import IO

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.standin.options import StandInOptions

_LONGEST_END_S = 5.0


class StandInProcess:
    """Run a stand-in; `pid` finds it, and starts another one where it crashed.

    Raises:
        GameError: if it does not start, with what it said.
    """

    def __init__(self, options: StandInOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._child = _start(options)

    def pid(self) -> int:
        """Give the id of the stand-in that runs."""
        with self._lock:
            if self._child.poll() is not None:
                try:
                    self._child = _start(self._options)
                except GameError as error:
                    raise LinkError(str(error)) from error
            return self._child.pid

    def tell(self, command: str) -> None:
        """Send a command of the stand-in's standard input, such as "crash" or "state"."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{command}\n")
        self._child.stdin.flush()

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._lock:
            self._child.terminate()
            try:
                self._child.wait(_LONGEST_END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _start(options: StandInOptions) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "soulsgraph_envs.standin", *options.arguments()]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    if "ready" not in child.stdout.readline():
        said = child.stderr.read().strip() or "nothing"
        child.wait()
        raise GameError(f"stand-in: expected it to start, found: {said.removeprefix('error: ')}")
    for pipe in (child.stdout, child.stderr):
        threading.Thread(target=_read_on, args=(pipe,), daemon=True).start()
    return child


def _read_on(pipe: IO[str]) -> None:
    """Take what it says, which must not fill the pipe and stop it."""
    for _ in pipe:
        pass
