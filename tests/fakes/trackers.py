"""Trackers that keep what they are called with, raise, or never answer."""

import threading
from collections.abc import Mapping
from pathlib import Path

from soulsgraph.tracking.contract import Logged, LogPoint, TrackedRun, Tracker


class KeptCalls(Tracker):
    """Keeps what it is called with; `local` as asked."""

    def __init__(self, local: bool = True) -> None:
        self.local = local  # type: ignore[misc]
        self.runs: list[TrackedRun] = []
        self.logged: list[tuple[str, int, dict[str, Logged]]] = []
        self.ended: list[bool] = []
        self.files: list[str] = []

    def begin(self, run: TrackedRun) -> None:
        self.runs.append(run)

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        self.logged.append((at.group, at.step, dict(values)))

    def file(self, name: str, file: Path) -> None:
        self.files.append(file.name)

    def end(self, finished: bool) -> None:
        self.ended.append(finished)


class RaisingTracker(KeptCalls):
    """A tracker whose server went away after it began."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(local=False)
        self.calls, self.error = 0, error

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        self.calls += 1
        raise self.error


class SilentTracker(KeptCalls):
    """A tracker whose server never answers; set `answers` to let it go on."""

    def __init__(self) -> None:
        super().__init__(local=False)
        self.answers, self.begun = threading.Event(), False

    def begin(self, run: TrackedRun) -> None:
        self.begun = True
        self.answers.wait()
