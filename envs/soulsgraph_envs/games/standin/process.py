"""A stand-in as a child process: memory at a chosen address, start, clean end, questions and commands."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.terminal import hangups
from soulsgraph_envs.games.realtime.link import GameSettings, LinkError
from soulsgraph_envs.games.standin.options import StandInOptions


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal end the program normally."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, *hangups())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def settings_of(options: StandInOptions, window: str) -> GameSettings:
    """Return the settings with which clients find this stand-in.

    Their launch command starts it again with the same options, but without misbehaviours.
    """
    files = {name: getattr(options, name) for name in ("map", "encounter", "scenario")}
    changes: dict[str, Any] = {
        name: str(Path(file).resolve()) for name, file in files.items() if file.endswith(".toml")
    }
    changes["display"] = options.display or os.environ.get("DISPLAY", "")
    again = replace(options, **changes, misbehave=(), until_eof=False)
    return GameSettings(
        map=again.map,
        pid=os.getpid(),
        display=again.display,
        window=window,
        speed=options.speed,
        launch=(sys.executable, "-P", "-m", "soulsgraph_envs.games.standin", *again.arguments()),
    )


#: The first start after a change compiles the simulator, on a busy machine for minutes.
_START_S, _ANSWER_S, _END_S = 600.0, 60.0, 5.0


class StandInProcess:
    """Run a stand-in as a child process, which ends with this one.

    Raises:
        GameError: if it does not start, with its output.
    """

    def __init__(self, options: StandInOptions) -> None:
        as_child = replace(options, json=True, until_eof=True)
        self._command = [sys.executable, "-P", "-m", "soulsgraph_envs.games.standin", *as_child.arguments()]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._complaint = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.expect("ready", _START_S)
        except GameError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def living_pid(self) -> int:
        """Return its process id; start it again if it crashed.

        Raises:
            LinkError: if it does not start, with its output.
        """
        with self._lock:
            if not self.running:
                self.close()
                try:
                    self._start()
                except GameError as error:
                    raise LinkError(str(error)) from error
            return self.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.poll() is None

    def tell(self, command: str) -> None:
        """Send it a command on standard input, such as "crash" or "freeze 3"."""
        try:
            print(command, file=self._child.stdin, flush=True)
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
        with self._child:
            self._child.terminate()
            try:
                self._child.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
            self._listener.join()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _last_words(self) -> str:
        return self._complaint.strip().removeprefix("error: ")

    def _listen(self) -> None:
        """Sort what it prints into events, which are JSON, and complaints."""
        for line in self._child.stdout or ():
            if line.startswith("{"):
                self._said.put(json.loads(line))
            else:
                self._complaint += line
        self._said.put({"event": "ended"})
