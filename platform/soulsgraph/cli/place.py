"""Open what a training command needs: the run folder, a Ray session, the TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from soulsgraph.advice import silence_advice
from soulsgraph.cli.options import Given, OutputOptions, SessionOptions, plan_values
from soulsgraph.cli.remedies import command_line
from soulsgraph.plan import Plan
from soulsgraph.progress import Display
from soulsgraph.run_folder import RunFolder, check_given
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.games import check_games
from soulsgraph_envs.live.settings import load_games

if TYPE_CHECKING:
    from soulsgraph.reproduction.folder import ReproductionFolder
    from soulsgraph.training import Workplace
    from soulsgraph_clusters.session import Session

#: The graph of the baseline's single skill.
BASELINE_GRAPH = "end-to-end"


def make_console(output: OutputOptions) -> Console:
    """Return the console for people, silent with `--json`: standard output is then for programs.

    Brackets and colons in a path are not markup.
    """
    return Console(quiet=output.json, markup=False, emoji=False)


def display_of(output: OutputOptions) -> Display:
    """Return how progress is shown."""
    return "silent" if output.json else "auto"


def print_json(value: Any) -> None:
    """Print plain values as one JSON document."""
    print(json.dumps(value, indent=2, allow_nan=False))


def check_ray(session: SessionOptions) -> None:
    """Check, before other work, that Ray can be joined or started with these options.

    Raises:
        ClusterError: if it cannot.
    """
    from soulsgraph_clusters.session import check_session

    check_session(session.address)


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
    """Check the games, open a `ray_session` of the run, and open the TensorBoard.

    Raises:
        SoulsGraphError: if Ray or a game of this machine cannot be used; a planned run is not begun then.
    """
    # Imported here: evaluation needs neither, and both take seconds.
    from soulsgraph.reports.tensorboard import Board
    from soulsgraph.training import Workplace
    from soulsgraph_clusters.session import LOCAL, chosen_address

    silence_advice()
    games = () if session.games is None else load_games(session.games)
    if chosen_address(session.address) == LOCAL:
        check_games(games)
    with (
        ray_session(run, session) as joined,
        Board(run.tensorboard, run.plan.skill_graph.order) as board,
    ):
        yield Workplace(run, joined, board, display_of(session), games=games)


@contextmanager
def ray_session(folder: RunFolder | ReproductionFolder, options: SessionOptions) -> Iterator[Session]:
    """Join or start Ray, and lock a folder meanwhile; a planned run or reproduction is begun once Ray runs."""
    from soulsgraph_clusters.session import connect

    with ExitStack() as stack:
        if folder.begun:
            stack.enter_context(folder.locked())
        joined = stack.enter_context(connect(options.address))
        if not folder.begun:
            folder.begin()
            stack.enter_context(folder.locked())
        yield joined
