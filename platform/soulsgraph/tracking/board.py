"""Where a run logs to: one board that passes everything to its trackers, none of which can stop or slow a training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from uuid import uuid4

from soulsgraph.tracking.contract import Logged, LogPoint, TrackedRun, Tracker
from soulsgraph_envs.core.config import listed
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, reading
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.files import write_text, writing

_logger = logging.getLogger("soulsgraph")
#: The tracker of runs that name none.
USUAL = "tensorboard"
#: Calls that a tracker may be behind before it loses some, and seconds that the end of a run waits for it.
MOST_WAITING, ENDS_WITHIN_S = 10_000, 60.0
#: Trackers by the modules that they need: their classes, and the extras that bring the modules.
_TRACKERS = {
    USUAL: ("TensorBoardTracker", "train"),
    "wandb": ("WandbTracker", "wandb"),
    "mlflow": ("MLflowTracker", "mlflow"),
}

Call = Callable[[Tracker], None]


def make_tracker(name: str) -> Tracker:
    """Return a new tracker that could work here.

    Raises:
        UnknownNameError: if nothing has that name.
        SoulsGraphError: if what it needs is not installed, or it refuses.
    """
    if name not in _TRACKERS:
        raise UnknownNameError("tracker", name, _TRACKERS)
    kind, extra = _TRACKERS[name]
    if find_spec(name) is None:
        raise SoulsGraphError(
            f"trackers: expected {name} to be installed, found none; install it: {pip_install(extra)}."
        )
    tracker: Tracker = getattr(import_module(f"{__package__}.{name}_tracker"), kind)()
    tracker.check()
    return tracker


def make_trackers(named: str | Tracker | Sequence[str | Tracker]) -> tuple[Tracker, ...]:
    """Return trackers by name, several separated by commas, or those that are objects already.

    Raises:
        UnknownNameError: as `make_tracker` does.
    """
    named = names_in(named) if isinstance(named, str) else named
    given = named if isinstance(named, list | tuple) else (named,)
    return tuple(make_tracker(one) if isinstance(one, str) else one for one in dict.fromkeys(given))


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of trackers that are separated by commas; `none` is none of them."""
    names = listed(text)
    return () if names == ("none",) else names


def identity_of(folder: Path) -> str:
    """Return the identity under which trackers know a run, made when it is first asked for.

    Raises:
        ReadError, WriteError: if its file cannot be read or written.
    """
    file = folder / "tracking-id"
    if not file.exists():
        write_text(file, uuid4().hex)
    with reading(file):
        return file.read_text(encoding="utf-8")


class BackgroundTracker:
    """Call a tracker in a thread of its own; what it raises is shown once, and it is not called again."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker, self._name = tracker, type(tracker).__name__
        self._calls: Queue[Call | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"tracker {self._name}", daemon=True)
        self._lost = False
        self._thread.start()

    def post(self, call: Call) -> None:
        """Call the tracker when its earlier calls are done, without waiting."""
        if self._lost:
            return
        try:
            self._calls.put_nowait(call)
        except Full:
            self._lose(f"a tracker that keeps up, found it {MOST_WAITING:,} calls behind")

    def close(self, within_s: float = ENDS_WITHIN_S) -> None:
        """Wait for the calls so far, but no longer than that."""
        if not self._lost:
            # A full queue is waited for as well: its tracker may never answer.
            until_s = time.monotonic() + within_s
            with suppress(Full):
                self._calls.put(None, timeout=within_s)
            self._thread.join(max(until_s - time.monotonic(), 0.0))
        if not self._lost and self._thread.is_alive():
            self._lose(f"an answer within {within_s:g} s of the end, found none")

    def _work(self) -> None:
        while not self._lost and (call := self._calls.get()) is not None:
            try:
                call(self._tracker)
            # Whatever it is, an exit too: it is not the training's.
            except BaseException as error:
                self._lose(f"it to go on, found {type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _lose(self, expected: str) -> None:
        self._lost = True
        _logger.warning(
            "%s: expected %s; the run goes on without it, and its results are in its folder; correct this and go on "
            "with the run to track the rest",
            self._name,
            expected,
        )


class Board:
    """Pass what a run logs to its trackers; close it, or use it in a `with`.

    What is logged at a step is passed on with `flush`, after a checkpoint: what a killed stage logged since then is
    lost, and the stage that goes on from there logs every step once.
    """

    def __init__(self, run: TrackedRun, trackers: Iterable[Tracker]) -> None:
        all_trackers = tuple(trackers)
        self._folder = run.folder
        self._local = [tracker for tracker in all_trackers if tracker.local]
        self._remote = [BackgroundTracker(tracker) for tracker in all_trackers if not tracker.local]
        self._pending: list[Call] = []
        self.call(lambda tracker: tracker.begin(run))

    @property
    def has_remote(self) -> bool:
        """Whether a tracker is there that shows more than this machine's own files."""
        return bool(self._remote)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # What comes after the last checkpoint is done again.
            self._pending.clear()
        self.close(finished=kind is None)

    def log(self, group: str, step: int, values: Mapping[str, Logged]) -> None:
        """Log values by name, at a count of the group's own steps."""
        at, values = LogPoint(group, step, time.time()), dict(values)
        self._pending.append(lambda tracker: tracker.log(at, values))

    def call(self, call: Call) -> None:
        """Call every tracker: the local ones now, the others when they have answered their earlier calls."""
        for tracker in self._local:
            with writing(self._folder):
                call(tracker)
        for background in self._remote:
            background.post(call)

    def flush(self) -> None:
        """Pass on everything that was logged at steps so far."""
        pending, self._pending = self._pending, []
        for call in (*pending, Tracker.flush):
            self.call(call)

    def close(self, finished: bool = True) -> None:
        """Pass on everything, and end the tracking."""
        self.flush()
        self.call(lambda tracker: tracker.end(finished))
        for tracker in self._remote:
            tracker.close()
