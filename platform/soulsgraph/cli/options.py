"""Options that several commands share, derived from their dataclasses; run folder, session and TensorBoard opened."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args, get_type_hints

from rich.console import Console, RenderableType
from tyro.conf import FlagCreatePairsOff, arg

from soulsgraph.cli.remedies import command_line
from soulsgraph.evaluate import EVALUATION_SEED
from soulsgraph.plan import Plan, lasting_name
from soulsgraph.progress import Display, silence_advice
from soulsgraph.run_folder import RunFolder, check_given
from soulsgraph.transfer.measures import TransferOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.drivers.opening import check_games
from soulsgraph_envs.drivers.realtime.link import load_games
from soulsgraph_envs.skills import load_skill_options

if TYPE_CHECKING:
    from soulsgraph.paper.study import ReproductionFolder
    from soulsgraph.train import Workplace
    from soulsgraph_clusters.session import Session

#: The options that were given, by name.
Given = Mapping[str, Any]
#: A flag that is off unless given.
Flag = Annotated[bool, FlagCreatePairsOff]


def option(kind: Any, help: str, default: object = None, **shown: Any) -> Any:
    """Return an option as the command line shows it; `shown` are further arguments of tyro's `arg`."""
    hint = "" if default is None else f"(default: {default})"
    return Annotated[kind, arg(help=help, help_behavior_hint=hint, **shown)]


def given_options(cls: type[Any], leave_out: tuple[str, ...] = (), **others: Any) -> Any:
    """Return what makes a dataclass's fields a command's options, passed as a mapping of those that were given.

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
    made = make(cls.__name__, {**options, **others}, total=False)
    made.__doc__ = (cls.__doc__ or "").splitlines()[0]
    return arg(constructor=made)


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


#: The options of a plan: what a new run trains and how.
PlanOptions = Annotated[
    Given,
    given_options(
        Plan,
        ("graph", "overrides"),
        skill_options=option(Path, "TOML file of reward weights and options, one table a skill."),
    ),
]


def plan_values(given: Given) -> dict[str, Any]:
    """Return the plan fields that the given options set.

    Raises:
        SoulsGraphError: if a file of skill options does not hold, or a scenario's path cannot be one.
    """
    values = dict(given)
    if "skill_options" in values:
        values["skill_options"] = load_skill_options(values["skill_options"])
    if "scenario" in values:
        values["scenario"] = lasting_name(values["scenario"])
    return values


@dataclass(frozen=True)
class OutputOptions:
    """How results are printed."""

    json: Flag = False
    """Print results as JSON only, for machines."""

    @property
    def console(self) -> Console:
        """The console for people, silent with `--json`: standard output is then for programs.

        Brackets and colons in a path are not markup.
        """
        return Console(quiet=self.json, markup=False, emoji=False, highlight=False)

    @property
    def display(self) -> Display:
        """How progress is shown."""
        return "silent" if self.json else "auto"

    def show(self, plain: Any, *parts: RenderableType) -> None:
        """Print results: plain values as one JSON document with `--json`, tables and lines for people otherwise."""
        if self.json:
            print(json.dumps(plain, indent=2, allow_nan=False))
        for part in parts:
            self.console.print(part, soft_wrap=isinstance(part, str))


@dataclass(frozen=True)
class SessionOptions(OutputOptions):
    """Where Ray runs and how results are printed."""

    address: str | None = None
    """Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started where the work needs one."""
    games: Path | None = None
    """TOML file of real-time games to train in, an env runner each; the simulator if not given."""


@dataclass(frozen=True)
class EvaluationOptions:
    """How long an agent is evaluated, and on which episodes."""

    episodes: int = Plan.episodes
    """Evaluation episodes for each setting."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every setting and every run by default."""


DEFAULT_EVALUATION, DEFAULT_TRANSFER = EvaluationOptions(), TransferOptions()
DEFAULT_OUTPUT, DEFAULT_SESSION = OutputOptions(), SessionOptions()


#: The graph of the baseline's single skill.
BASELINE_GRAPH = "end-to-end"


def open_run(path: Path, given: Given) -> RunFolder:
    """Open an existing run to continue it as it was begun.

    Raises:
        SoulsGraphError: if the folder is no run, or an option given contradicts its plan.
    """
    run = RunFolder.open(path)
    check_given(path, run.plan, plan_values(given), "begin another run folder")
    return run


def begin_or_resume(path: Path, given: Given, resume: bool, graph: str) -> RunFolder:
    """Plan a run of a graph, which `workplace` begins, or open an existing one to continue it.

    Raises:
        SoulsGraphError: if the plan is not valid; if the folder to resume is no run, or one of another
            graph, or an option given contradicts its plan.
    """
    if not resume:
        return RunFolder.planned(path, Plan(graph=graph, **plan_values(given)))
    run = open_run(path, given)
    if run.plan.graph != graph:
        command = "baseline" if run.plan.graph == BASELINE_GRAPH else "curriculum"
        raise SoulsGraphError(
            f"{path}: expected a run of the graph {graph!r}, found one of {run.plan.graph!r}; "
            f"go on with: {command_line(command, '--resume', '--run', path)}."
        )
    return run


@contextmanager
def workplace(run: RunFolder, session: SessionOptions) -> Iterator[Workplace]:
    """Check the games, lock the run, join or start Ray where env runners need it, and open the TensorBoard.

    Raises:
        SoulsGraphError: if Ray or a game of this machine cannot be used; a planned run is not begun then.
    """
    # Imported here: evaluation needs neither, and both take seconds.
    from soulsgraph.progress import Board
    from soulsgraph.train import Workplace
    from soulsgraph.worker_process import WorkerProcess
    from soulsgraph_clusters.session import LOCAL, chosen_address

    games = () if session.games is None else load_games(session.games)
    if chosen_address(session.address) == LOCAL:
        check_games(games)
    with (
        ray_session(run, session, needed=bool(games or run.plan.env_runners)) as joined,
        Board(run.tensorboard, run.plan.skill_graph.order) as board,
        WorkerProcess() as worker,
    ):
        yield Workplace(run, joined, board, session.display, games=games, worker=worker)


@contextmanager
def ray_session(
    folder: RunFolder | ReproductionFolder, options: SessionOptions, needed: bool = True
) -> Iterator[Session]:
    """Join or start Ray, compile what is not, and lock a folder meanwhile; a planned one is begun after that.

    A private Ray is started only if `needed`.
    """
    from soulsgraph.precompile import precompile
    from soulsgraph_clusters.session import connect

    silence_advice()
    with ExitStack() as stack:
        if folder.begun:
            stack.enter_context(folder.locked())
        joined = stack.enter_context(connect(options.address, needed=needed))
        precompile(options.console)
        if not folder.begun:
            folder.begin()
            stack.enter_context(folder.locked())
        yield joined
