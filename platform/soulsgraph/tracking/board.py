"""Where a run logs to: one board that passes everything to its trackers, none of which can stop or slow a training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path
from queue import Full, Queue
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from soulsgraph.tracking.contract import LogPoint, Plain, TrackedRun, Tracker
from soulsgraph_envs.core.config import Where, read_file, read_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.files import write_json

_logger = logging.getLogger("soulsgraph")
#: The group of entry points by which an installed package offers a tracker.
TRACKERS = "soulsgraph.trackers"
#: The tracker of runs that name none.
USUAL = "tensorboard"
#: Calls that a tracker may be behind before it loses some, and seconds that the end of a run waits for it.
MOST_WAITING, ENDS_WITHIN_S = 10_000, 60.0

Call = Callable[[Tracker], None]


@dataclass(frozen=True)
class _TrackerEntry:
    """Where a tracker of ours is, the module that it needs, and the extra that brings it."""

    module: str
    kind: str
    needs: str
    extra: str


_SHIPPED: Mapping[str, _TrackerEntry] = {
    USUAL: _TrackerEntry("tensorboard", "TensorBoardTracker", "tensorboard", "train"),
    "wandb": _TrackerEntry("wandb_tracker", "WandbTracker", "wandb", "wandb"),
    "mlflow": _TrackerEntry("mlflow_tracker", "MLflowTracker", "mlflow", "mlflow"),
}


def tracker_names() -> tuple[str, ...]:
    """Return the names of all trackers: ours, and those that installed packages offer."""
    return tuple(dict.fromkeys((*_SHIPPED, *sorted(entry_points(group=TRACKERS).names))))


def make_tracker(name: str) -> Tracker:
    """Return a new tracker that could work here.

    Raises:
        UnknownNameError: if nothing has that name.
        SoulsGraphError: if what it needs is not installed, it refuses, or an installed package offers something else.
    """
    tracker = _shipped(_SHIPPED[name]) if name in _SHIPPED else _installed(name)
    tracker.check()
    return tracker


def _shipped(tracker: _TrackerEntry) -> Tracker:
    if find_spec(tracker.needs) is None:
        raise SoulsGraphError(
            f"trackers: expected {tracker.needs} to be installed, found none; install it: {pip_install(tracker.extra)}."
        )
    made: Tracker = getattr(import_module(f"{__package__}.{tracker.module}"), tracker.kind)()
    return made


def _installed(name: str) -> Tracker:
    points = {point.name: point for point in entry_points(group=TRACKERS)}
    if name not in points:
        raise UnknownNameError("tracker", name, tracker_names())
    try:
        made = points[name].load()()
    except (Exception, SystemExit) as error:
        raise SoulsGraphError(
            f"tracker {name}: expected a class that is called without arguments at {points[name].value}, found "
            f"{error!r}; correct the package that offers it, or leave it out."
        ) from error
    if not isinstance(made, Tracker):
        raise SoulsGraphError(
            f"tracker {name}: expected a Tracker of soulsgraph.tracking.contract, found {shown(made)}; correct the "
            "package that offers it, or leave it out."
        )
    return made


@dataclass(frozen=True)
class _Identity:
    """What `tracking.json` holds."""

    identity: str


def identity_of(folder: Path) -> str:
    """Return the identity under which trackers know a run, made when it is first asked for.

    Raises:
        DataError: if its file is damaged.
        WriteError: if it cannot be written.
    """
    file = folder / "tracking.json"
    if not file.exists():
        write_json(file, {"identity": uuid4().hex})
    where = Where(file, remedy="remove the file to track the run as another one")
    return read_table(_Identity, read_file(where), where).identity


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
        self._local = [tracker for tracker in all_trackers if tracker.local]
        self._remote = [BackgroundTracker(tracker) for tracker in all_trackers if not tracker.local]
        self._pending: list[Call] = []
        self._pass_on(methodcaller("begin", run))

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

    def log(self, group: str, step: int, values: Mapping[str, float]) -> None:
        """Log values by name, at a count of the group's own steps."""
        self._pending.append(methodcaller("scalars", LogPoint(group, step, time.time()), dict(values)))

    def histogram(self, group: str, step: int, name: str, values: npt.NDArray[np.generic]) -> None:
        """Log how values are distributed, (values,)."""
        self._pending.append(methodcaller("histogram", LogPoint(group, step, time.time()), name, values))

    def image(self, group: str, step: int, name: str, pixels: npt.NDArray[np.uint8]) -> None:
        """Log a picture, (height, width, 3)."""
        self._pending.append(methodcaller("image", LogPoint(group, step, time.time()), name, pixels))

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table."""
        self._pass_on(methodcaller("table", name, rows, markdown))

    def hyperparameters(self, values: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its results."""
        self._pass_on(methodcaller("hyperparameters", dict(values), dict(results)))

    def video(self, name: str, file: Path) -> None:
        """Show a film, which has to stay where it is until the board is closed."""
        self._pass_on(methodcaller("video", name, file))

    def artifact(self, file: Path) -> None:
        """Keep a file, which has to stay where it is until the board is closed."""
        self._pass_on(methodcaller("artifact", file))

    def flush(self) -> None:
        """Pass on everything that was logged at steps so far."""
        pending, self._pending = self._pending, []
        for call in pending:
            self._pass_on(call)
        self._pass_on(methodcaller("flush"))

    def close(self, finished: bool = True) -> None:
        """Pass on everything, and end the tracking."""
        self.flush()
        self._pass_on(methodcaller("end", finished))
        for tracker in self._remote:
            tracker.close()

    def _pass_on(self, call: Call) -> None:
        for tracker in self._local:
            call(tracker)
        for background in self._remote:
            background.post(call)


def make_trackers(named: str | Tracker | Sequence[str | Tracker]) -> tuple[Tracker, ...]:
    """Return trackers by name, several separated by commas, or those that are objects already.

    Raises:
        UnknownNameError: as `make_tracker` does.
        SoulsGraphError: for what is neither a name nor a tracker.
    """
    named = names_in(named) if isinstance(named, str) else named
    given = named if isinstance(named, list | tuple) else (named,)
    for one in given:
        if not isinstance(one, str | Tracker):
            raise SoulsGraphError(f"track: expected names of trackers or trackers, found {shown(one)}; correct it.")
    return tuple(make_tracker(one) if isinstance(one, str) else one for one in dict.fromkeys(given))


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of trackers that are separated by commas; `none` is none of them."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return () if names == ("none",) else names
