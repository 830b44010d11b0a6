"""Options that several commands share, derived from their dataclasses; run folder, session and trackers opened."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, get_args, get_type_hints

from cyclopts import Parameter

from soulsgraph.cli.output import screen
from soulsgraph.runs.plan import Plan, check_range, lasting_name, overrides_for
from soulsgraph.runs.run_folder import PlannedFolder, RunFolder, check_given
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.tracking.board import USUAL, make_trackers
from soulsgraph.zoo import is_agent, open_own_run, own_copy
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.opening import check_games
from soulsgraph_envs.skills import load_skill_options

if TYPE_CHECKING:
    from soulsgraph.runs.train import Workplace
    from soulsgraph_clusters.fleet.gateway.runner import Gateways
    from soulsgraph_clusters.fleet.protocol.settings import Fleet
    from soulsgraph_clusters.sessions.session import Session

#: The options that were given, by name.
Given = Mapping[str, Any]


def option(kind: Any, help: str, default: object = None, **shown: Any) -> Any:
    """Return an option as the command line shows it; `shown` are further arguments of cyclopts' `Parameter`."""
    text = help if default is None else f"{help} [default: {default}]"
    return Annotated[kind, Parameter(help=text, negative_bool="no-", **shown)]


def given_options(cls: type[Any], *leave_out: str, **others: Any) -> Any:
    """Return what makes a dataclass's fields a command's options, passed as keywords of those that were given.

    A field's docstring is the option's help. `others` (made by `option`) take the place of the fields of their
    names, or are added.
    """
    hints, docs = get_type_hints(cls), field_docs(cls)
    options = {
        field.name: option(_required(hints[field.name]), docs[field.name], field.default)
        for field in fields(cls)
        if field.name not in (*leave_out, *others)
    }
    make: Any = TypedDict  # Its fields are no literal.
    return Unpack[make(cls.__name__, {**options, **others}, total=False)]


def _required(hint: Any) -> Any:
    """Return the type of an option that may be left out, but not be given as None."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint


def field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a dataclass."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(str(doc.value.value).split())
        for field, doc in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
    }


def set_option(help: str) -> Any:
    """Return the option by which single options are changed, several behind one `--set`."""
    return option(tuple[str, ...], help, name="--set", consume_multiple=True)


#: The option by which single options of the learner are changed.
SET = set_option("Options of the learner to change: gamma=0.98 n_step=3; of one skill alone dodge.gamma=0.99.")


def plan_options(*leave_out: str, **others: Any) -> Any:
    """Return the options of a plan but for some of its fields; `others` are added."""
    others["skill_options"] = option(Path, "TOML file of reward weights and options, one table a skill.")
    if "overrides" not in leave_out:
        others["overrides"] = SET
    return given_options(Plan, "learners", *leave_out, **others)


if TYPE_CHECKING:
    PlanOptions = Any
else:
    #: The options of a plan: what a new run trains and how.
    PlanOptions = plan_options()


def plan_values(given: Given, graph: str = Plan.graph) -> dict[str, Any]:
    """Return the fields of a plan that the given options set, of this graph where none is given.

    Raises:
        SoulsGraphError: if a file of skill options does not hold, a scenario's path cannot be one, or an option is set
            twice or without a value.
    """
    values = dict(given)
    if "overrides" in values:
        overrides = read_overrides(values["overrides"], "gamma=0.98")
        values["overrides"] = overrides_for(values.get("graph", graph), overrides)
    if "skill_options" in values:
        values["skill_options"] = load_skill_options(values["skill_options"])
    if "scenario" in values:
        values["scenario"] = lasting_name(values["scenario"])
    return values


def read_overrides(texts: Sequence[str], example: str) -> dict[str, Any]:
    """Read NAME=VALUE, each by its name; `example` is what the refusal of a malformed one advises.

    Raises:
        SoulsGraphError: if one is set twice or without a value.
    """
    overrides = dict(_override(text, example) for text in texts)
    if len(overrides) < len(texts):
        raise SoulsGraphError(f"--set: expected each option once, found {' '.join(texts)}; leave one out.")
    return overrides


def _override(text: str, example: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SoulsGraphError(f"--set: expected OPTION=VALUE, found {text!r}; write for example {example}.")
    try:
        return name, parse(value, "JSON", Where(None, f"--set {name}", "correct the value"))
    except DataError as error:
        if isinstance(error.__cause__, ValueError):
            return name, value  # A word needs no quotes.
        raise


@Parameter(name="*")
@dataclass(frozen=True)
class SessionOptions:
    """Where Ray runs."""

    address: str | None = None
    """Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started where the work needs one."""
    places_within: float = 0.0
    """Minutes that a stage waits until every env runner has a place, for example while an autoscaler starts machines;
    without it, half a minute, and only for places that the cluster has already."""

    @property
    def places_within_s(self) -> float:
        """The same in seconds; raises `SoulsGraphError` for what is no time."""
        check_range("places_within", self.places_within, 0.0, 1_440.0)
        return 60.0 * self.places_within


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions(SessionOptions):
    """Where Ray runs, what plays, and what a training is tracked by."""

    games: Path | None = None
    """TOML file of real-time games to train in, a process each; the simulator if not given."""
    fleet: Path | None = None
    """TOML file of a fleet: its game PCs play, each with `soulsgraph fleet host`, in the place of env runners."""
    no_ray: bool = False
    """Run a fleet's gateway in this process, without Ray, as on Windows. It then ends with this process; as a Ray actor
    it would be restarted if it is killed."""
    track: str = USUAL
    """Trackers of the run, separated by commas: tensorboard, wandb, mlflow, or none."""
    track_fights: bool = False
    """Track pictures of a greedy fight, its Q-values and actions, every 5,000 decisions of a skill."""


DEFAULT_SESSION, DEFAULT_TRAINING = SessionOptions(), TrainingOptions()


def check_taken(what: str, asked: Mapping[str, object], takes: Collection[str] = ()) -> None:
    """Refuse an option that has a value, and that `what` does not take, which would have no effect.

    Raises:
        SoulsGraphError: naming the first.
    """
    if wrong := next((name for name, value in asked.items() if value and name not in takes), None):
        raise SoulsGraphError(f"{what}: expected no `{wrong}`, found it; leave it out.")


def names_of(text: str) -> tuple[str, ...]:
    """Return names that were separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def open_run(path: Path, given: Given) -> RunFolder:
    """Open an existing run to continue it as it was begun.

    Raises:
        SoulsGraphError: if the folder is no run, or an option given contradicts its plan.
    """
    run = open_own_run(path)
    check_given(path, run.plan, plan_values(given, run.plan.graph))
    return run


def is_begun(path: Path) -> bool:
    """Return whether a folder holds a run."""
    return (path / RunFolder.plan_file).exists()


def open_or_plan(path: Path, given: Given) -> RunFolder:
    """Open an existing run to continue it as it was begun, or plan one; raises as both do."""
    return open_run(path, given) if is_begun(path) else RunFolder.planned(path, Plan(**plan_values(given)))


def changed_run(run: RunFolder, texts: Sequence[str]) -> RunFolder:
    """Return a run whose stages learn by NAME=VALUE beside its own options; what is in its folder stays.

    Raises:
        SoulsGraphError: for an unknown option, or a value out of its range.
    """
    if not texts:
        return run
    overrides = read_overrides(texts, "lr=1e-4")
    plan = replace(run.plan, overrides={**run.plan.overrides, **overrides_for(run.plan.graph, overrides)})
    return RunFolder(run.path, plan, run.fight)


def own_run(path: Path, copy: Path | None) -> Path:
    """Return the run folder to write into: `path`, or a copy of the agent of that name, created or resumed.

    Raises:
        SoulsGraphError: if an agent is named and no folder for its copy, or another run is in that folder.
    """
    if not is_agent(path):
        if copy is not None:
            raise SoulsGraphError(f"--run: expected none, for {path} is no agent of the zoo; leave it out.")
        return path
    if copy is None:
        open_own_run(path)
        return path
    begun = is_begun(copy)
    own_copy(str(path), copy)
    screen.console.print(f"going on with {copy}, a copy of {path}" if begun else f"{path} of the zoo copied to {copy}")
    return copy


@contextmanager
def workplace(run: RunFolder, session: TrainingOptions, worker: WorkerProcess | None = None) -> Iterator[Workplace]:
    """Check games and trackers, lock the run, join or start Ray where env runners need it, and open the trackers.

    Learning curves are played by `worker`, or by a process that ends with the work.

    Raises:
        SoulsGraphError: if Ray or a game of this machine cannot be used; a planned run is not begun then.
    """
    # Imported here: evaluation needs none of it, and it takes seconds.
    from soulsgraph.runs.train import Workplace
    from soulsgraph_clusters.fleet.protocol.settings import load_fleet, sole_head
    from soulsgraph_clusters.sessions.session import LOCAL, chosen_address

    trackers = make_trackers(session.track)
    games = () if session.games is None else load_games(session.games)
    without_ray = session.no_ray or sys.platform == "win32"
    fleet = None if session.fleet is None else load_fleet(session.fleet)
    if games and fleet:
        raise SoulsGraphError("expected `games` or `fleet`, found both; leave one out.")
    if games or fleet:
        _check_real_time(run.plan, fleet is not None)
    if fleet:
        # Imported here: gRPC takes a moment that a run in the simulator need not wait.
        from soulsgraph_clusters.fleet.protocol.security import read_identity

        read_identity(fleet.settings, fleet.folder)
    here = chosen_address(session.address) == LOCAL
    if here:
        check_games(games)
    sole = nullcontext() if fleet is None else sole_head(fleet)
    needed = bool((fleet and not without_ray) or (run.plan.env_runners and not games))
    if session.no_ray and (needed or not here):
        found = "env runners" if here else "a cluster's address"
        raise SoulsGraphError(f"no_ray: expected work that needs no Ray, found {found}; leave one out.")
    with (
        ray_session(run, session, needed, sole) as joined,
        _games_of_cluster(None if here else session.games, joined, run.plan.env_runners) as own,
        _gateways(own or fleet, joined, own is None and without_ray) as gateways,
        WorkerProcess() if worker is None else nullcontext(worker) as curves,
        Workplace(
            run, joined, screen.display, None, gateways, games if here else (), curves, trackers, session.track_fights
        ) as workplace,
    ):
        yield workplace


def _check_real_time(plan: Plan, fleet: bool) -> None:
    """Refuse what has no effect on games in real time; raises SoulsGraphError."""
    if plan.synchronous:
        raise SoulsGraphError(
            f"expected `synchronous` or `{'fleet' if fleet else 'games'}`, found both: games in real time come as they "
            "come, and a run by them is repeated from its journal; begin a run without `synchronous`."
        )
    if fleet and plan.env_runners:
        raise SoulsGraphError(
            f"expected `env_runners` or `fleet`, found `fleet` for a run of {plan.env_runners} env runners: its PCs "
            "play in their place; leave `env_runners` out, and for a simulator start `soulsgraph fleet host` with "
            'driver = "simulator" in its games file.'
        )


def _games_of_cluster(file: Path | None, session: Session, game_pcs: int) -> AbstractContextManager[Fleet | None]:
    """Play the games of a file, if there is one, on a cluster's game PCs, as a fleet of the run's own."""
    if file is None:
        return nullcontext()
    # Imported here: gRPC takes a moment that a run in the simulator need not wait.
    from soulsgraph_clusters.fleet.learner.games import games_of_cluster

    return games_of_cluster(file, session, game_pcs)


def _gateways(fleet: Fleet | None, session: Session, without_ray: bool) -> AbstractContextManager[Gateways | None]:
    """Keep the gateways of a fleet, if there is one, from the first stage to the last."""
    if fleet is None:
        return nullcontext()
    # Imported here: gRPC takes a moment that a run in the simulator need not wait.
    from soulsgraph_clusters.fleet.gateway.runner import Gateways

    return closing(Gateways(fleet, session, without_ray))


@contextmanager
def ray_session(
    folder: PlannedFolder[Any],
    options: SessionOptions,
    needed: bool = True,
    sole: AbstractContextManager[None] = nullcontext(),  # noqa: B008 - it has no state
) -> Iterator[Session]:
    """Join or start Ray, compile what is not, and lock a folder meanwhile; a planned one is begun after that.

    A private Ray is started only if `needed`. `sole` is entered once the folder is locked: a training that outlived its
    supervisor is ended by then, and holds nothing else.
    """
    # Imported here: evaluation needs none of it, and it takes seconds.
    from soulsgraph.runs.workplace import joined_session

    within_s = options.places_within_s
    with joined_session(folder, screen.console, options.address, needed, within_s, sole) as joined:
        yield joined
