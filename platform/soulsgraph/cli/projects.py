"""Commands for projects of a user's own: begin one, check it, try it, and list what may be named in it."""

from __future__ import annotations

import builtins
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_OUTPUT, DEFAULT_RUN, Flag, OutputOptions, RunOptions, command_line, quoted
from soulsgraph.project import begin_project, listing
from soulsgraph.results.tables import as_markdown, text_table
from soulsgraph.runs.plan import Plan, check_range
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_policies.agents.projects import load_project, loaded_projects

#: The options of every agent's plan that is compared.
ComparedOptions = Annotated[options.Given, options.plan_options("seed", "env_runners", "synchronous")]
Named = Annotated[Positional[Path], arg(metavar="PROJECT")]


def init(folder: Annotated[Positional[Path], arg(metavar="NAME")], output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Begin a project of your own: a skill, a graph, a boss, a reward, a test and a README, in a new folder.

    Args:
        folder: Name of the project, of small letters, digits and underscores, or the path of a folder of that name.
    """
    files = begin_project(folder)
    commands = [command_line(name, folder) for name in ("validate", "smoke")]
    plain = {"project": folder.name, "folder": str(folder), "files": [str(file) for file in files]}
    test = f"pytest {quoted(str(folder))}"
    missing = "" if find_spec("pytest") else ", after pip install pytest: none is installed here"
    output.show(
        plain,
        *map(str, files),
        f"check it with: {commands[0]}; then: {commands[1]}",
        f"run its test with: {test}{missing}",
    )


def validate(project: Named, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Check a project without training: skills, graphs, fights, rewards, references, an update; exit 1 on failure.

    Args:
        project: Folder of a project, or the name of an installed one.
    """
    from soulsgraph.project.checking import validate as checks

    silence_advice()
    name, found = _name_of(project), []
    output.precompile(training=True)
    for check in checks(name):
        found.append(check)
        output.console.print(f"{'holds' if check.holds else 'FAILS'}  {check.name}: {check.found}")
    failed = sum(not check.holds for check in found)
    summary = f"{failed} of {len(found)} checks failed" if failed else f"all {len(found)} checks hold"
    output.show([asdict(check) for check in found], summary, passed=not failed)


def smoke(project: Named, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Play and learn 1,000 decisions of each skill of a project, on top of untrained networks.

    Args:
        project: Folder of a project, or the name of an installed one.
    """
    from soulsgraph.project.checking import smoke as smoked

    silence_advice()
    name, began, found = _name_of(project), time.monotonic(), []
    output.precompile(training=True)
    for one in smoked(name):
        found.append(one)
        output.console.print(
            f"{one.skill} in {one.scenario}: {one.decisions:,} decisions, {one.updates} updates; mean return "
            f"{one.random_return:.2f} at random, {one.reference_return:.2f} by its reference"
        )
    output.show([asdict(one) for one in found], f"smoke test passed in {time.monotonic() - began:.0f} s")


def compare(
    graphs: Positional[tuple[str, ...]],
    plan: ComparedOptions,
    output: RunOptions = DEFAULT_RUN,
    seeds: int = 5,
    out: Path = Path("runs/compare"),
) -> None:
    """Train agents of several skill graphs on the same seeds, and evaluate them in the same fights.

    The same command resumes an interrupted comparison. The first graph is what the others are compared with.

    Args:
        graphs: Skill graphs, as paper and PROJECT/GRAPH.
        seeds: Training seeds of each graph, counted from 0.
        out: Folder of the runs and the comparison.
    """
    check_range("seeds", seeds, 1, 1000)
    if len(set(graphs)) < 2 or len(set(graphs)) < len(graphs):
        raise SoulsGraphError(f"compare: expected two graphs or more, each once, found {', '.join(graphs) or 'none'}.")
    from soulsgraph.project.comparing import HEADINGS, Comparison
    from soulsgraph_clusters.sessions.session import connect

    silence_advice()
    comparison = Comparison(Plan(**options.plan_values(plan)), graphs, range(seeds), out)
    for _ in comparison.runs():
        pass  # What cannot be trained is refused before anything is.
    with connect("local", needed=False) as session, WorkerProcess() as worker:
        output.precompile(training=True)
        compared = comparison.train(session, worker, output.console, output.display)
    output.show(compared.to_dict(), text_table("", HEADINGS, compared.rows), f"comparison in {out}")


def list(
    what: Positional[
        Literal[
            "scenarios",
            "presets",
            "options",
            "skills",
            "graphs",
            "sequences",
            "methods",
            "environments",
            "controls",
            "columns",
        ]
    ],
    output: RunOptions = DEFAULT_RUN,
    markdown: Flag = False,
) -> None:
    """List known names: scenarios, presets, options, skills, graphs, sequences, methods ...

    Args:
        what: scenarios: fights by name; presets: ways of learning; options: everything that a preset may set; skills
            and graphs: the shipped ones and those of projects; sequences: bosses to learn one after another; methods:
            those of continual learning; environments: by their ids; controls and columns: what an action may press, and
            what the State has to observe.
        markdown: Print Markdown.
    """
    table = listing.LISTS[what]()
    if markdown and not output.json:
        print(as_markdown([table]), end="")
        return
    output.show(table.plain(), text_table("", table.headings, table.rows))


def _name_of(project: Path) -> str:
    """Return the name of a project in a folder, or of an installed one."""
    known = builtins.list(loaded_projects())
    if str(project) in known and not project.exists():
        return str(project)
    if not project.exists() and len(project.parts) == 1 and known:
        raise UnknownNameError("project", str(project), known)
    return load_project(project).project.name
