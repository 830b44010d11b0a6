"""Join or start Ray for work on a folder, with the folder locked and everything compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from soulsgraph.runs.places import TrainingPlace
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder
from soulsgraph.runs.train import Workplace
from soulsgraph.runs.workers import WorkerProcess, precompile
from soulsgraph.tracking.board import USUAL
from soulsgraph.tracking.contract import Tracker
from soulsgraph_clusters.fleet.protocol.settings import load_fleet, sole_head
from soulsgraph_clusters.sessions.session import LOCAL, Session, chosen_address, connect
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.opening import check_games
from soulsgraph_policies.learning.own_learner import LearnerFactory


@contextmanager
def joined_session(
    folder: PlannedFolder[Any],
    console: Console,
    address: str | None,
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
def training_workplace(
    run: RunFolder,
    place: TrainingPlace,
    console: Console,
    trackers: Sequence[str | Tracker] = (USUAL,),
    learners: Mapping[str, LearnerFactory] = MappingProxyType({}),
    *,
    worker: WorkerProcess,
) -> Iterator[Workplace]:
    """Open the place where stages of a run are trained; a quiet console shows no progress.

    `learners` are those of your own by skill; the run is tracked by `trackers`. Learning curves are played by `worker`.

    Raises:
        SoulsGraphError: if Ray or a game of this machine cannot be used; a planned run is not begun then.
    """
    games = () if place.games is None else load_games(Path(place.games))
    fleet = None if place.fleet is None else load_fleet(Path(place.fleet))
    check_real_time(run.plan, place)
    if fleet:
        # Imported here: gRPC takes a moment that a run in the simulator need not wait.
        from soulsgraph_clusters.fleet.protocol.certificates import read_identity

        read_identity(fleet.settings, fleet.folder)
    here = chosen_address(place.address) == LOCAL
    if here:
        check_games(games)
    sole = nullcontext() if fleet is None else sole_head(fleet)
    needed = bool((fleet and not place.without_ray) or (run.plan.env_runners and not games))
    if place.no_ray and (needed or not here):
        found = "env runners" if here else "a cluster's address"
        raise SoulsGraphError(f"no_ray: expected work that needs no Ray, found {found}; leave one out.")
    with ExitStack() as stack:
        joined = stack.enter_context(
            joined_session(run, console, place.address, needed, 60.0 * place.places_within, sole)
        )
        gateway = None
        if fleet is not None:
            from soulsgraph_clusters.fleet.gateway.runner import FleetGateway

            gateway = stack.enter_context(closing(FleetGateway(fleet, joined, place.without_ray)))
        yield stack.enter_context(
            Workplace(
                run,
                joined,
                console,
                gateway=gateway,
                games=games,
                worker=worker,
                trackers=trackers,
                fights=place.track_fights,
                learners=learners,
            )
        )


def check_real_time(plan: Plan, place: TrainingPlace) -> None:
    """Refuse what has no effect on games in real time; raises SoulsGraphError."""
    kind = "fleet" if place.fleet is not None else "games"
    if getattr(place, kind) is None:
        return
    if plan.synchronous:
        raise SoulsGraphError(
            f"expected `synchronous` or `{kind}`, found both: games in real time come as they come, and a run by them "
            "is repeated from its journal; begin a run without `synchronous`."
        )
    if plan.env_runners and kind == "fleet":
        raise SoulsGraphError(
            f"expected `env_runners` or `fleet`, found `fleet` for a run of {plan.env_runners} env runners: its PCs "
            "play in their place; leave `env_runners` out, and for a simulator start `soulsgraph fleet host` with "
            'driver = "simulator" in its games file.'
        )
