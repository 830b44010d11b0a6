"""A stand-in as a child process: start it, send it commands, ask for its state, end it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from dataclasses import replace
from types import TracebackType
from typing import Any

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.standin.options import StandInOptions

#: The first start after a change compiles the simulator, on a busy machine for minutes.
_START_S, _ANSWER_S, _END_S = 600.0, 60.0, 5.0


class StandInProcess:
    """Run a stand-in as a child process, which ends with this one.

    Raises:
        GameError: if it does not start, with its output.
    """

    def __init__(self, options: StandInOptions) -> None:
        told = replace(options, json=True, until_eof=True)
        command = [sys.executable, "-m", "soulsgraph_envs.standin", *told.arguments()]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._complaint = ""
        self._listeners = [threading.Thread(target=listen, daemon=True) for listen in (self._listen, self._complain)]
        for listener in self._listeners:
            listener.start()
        try:
            self.expect("ready", _START_S)
        except GameError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.poll() is None

    def tell(self, command: str) -> None:
        """Send it a command on standard input, such as "crash" or "freeze 3"."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{command}\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise GameError(f"the stand-in: expected it to run, found it gone ({self._last_words}).") from error

    def state(self, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        """Return the true state of the world, whatever its memory shows."""
        self.tell("state")
        return self.expect("state", timeout_s)

    def expect(self, event: str, timeout_s: float) -> dict[str, Any]:
        """Wait until it reports an event and return the event's values; earlier events are skipped.

        Raises:
            GameError: if it does not in time, or ends.
        """
        while True:
            try:
                said = self._said.get(timeout=timeout_s)
            except queue.Empty:
                raise GameError(
                    f"the stand-in: expected {event!r} within {timeout_s:g} s, it did not say it."
                ) from None
            if said["event"] == event:
                return said
            if said["event"] == "ended":
                self._listeners[1].join()
                raise GameError(f"the stand-in: expected {event!r}, found it ended: {self._last_words}")

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code, negative for the signal that ended it.

        Raises:
            GameError: if it does not end in time.
        """
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise GameError(f"the stand-in: expected it to end within {timeout_s:g} s, it still runs.") from None

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._child.terminate()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for listener in self._listeners:
            listener.join()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _last_words(self) -> str:
        return self._complaint.strip().removeprefix("error: ")

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._said.put(json.loads(line))
        self._said.put({"event": "ended"})

    def _complain(self) -> None:
        assert self._child.stderr is not None
        self._complaint = self._child.stderr.read()
