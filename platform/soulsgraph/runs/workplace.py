"""Join or start Ray for work on a folder, with the folder locked and everything compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

from rich.console import Console

from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder
from soulsgraph.runs.train import Workplace
from soulsgraph.runs.workers import WorkerProcess, precompile
from soulsgraph.tracking.board import USUAL
from soulsgraph.tracking.contract import Tracker
from soulsgraph_clusters.sessions.session import Session, connect
from soulsgraph_policies.learning.own_learner import LearnerFactory


@contextmanager
def joined_session(
    folder: PlannedFolder[Any],
    console: Console,
    address: str | None = None,
    needed: bool = True,
    places_within_s: float = 0.0,
    sole: AbstractContextManager[None] = nullcontext(),  # noqa: B008 - it has no state
) -> Iterator[Session]:
    """Join or start Ray, compile what is not, and lock a folder meanwhile; a planned one is begun after that.

    A private Ray is started only if `needed`. `sole` is entered once the folder is locked: a training that outlived its
    supervisor is ended by then, and holds nothing else.
    """
    silence_advice()
    with ExitStack() as stack:
        if begun := folder.begun:
            stack.enter_context(folder.locked())
        stack.enter_context(sole)
        joined = stack.enter_context(connect(address, needed=needed, places_within_s=places_within_s))
        precompile(console)
        if not begun:
            stack.enter_context(folder.locked())
        yield joined


@contextmanager
def simulator_workplace(
    folder: RunFolder,
    console: Console,
    address: str | None = None,
    learners: Mapping[str, LearnerFactory] = MappingProxyType({}),
    trackers: Sequence[str | Tracker] = (USUAL,),
) -> Iterator[Workplace]:
    """Open the place where stages of a run are trained in the simulator; a quiet console shows no progress.

    `learners` are those of your own by skill; the run is tracked by `trackers`.

    Raises:
        SoulsGraphError: if Ray cannot be used; a planned run is not begun then.
    """
    with (
        joined_session(folder, console, address, needed=bool(folder.plan.env_runners)) as joined,
        WorkerProcess() as worker,
        Workplace(
            folder, joined, "silent" if console.quiet else "auto", worker=worker, trackers=trackers, learners=learners
        ) as workplace,
    ):
        yield workplace
