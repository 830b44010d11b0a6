"""A project of a user's own: begin one, and list what may be named in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from soulsgraph.cli.output import command_line, quoted, screen
from soulsgraph.project import begin_project, listing
from soulsgraph.results.tables import text_table


def init(folder: Path, /) -> None:
    """Begin a project of your own: a skill, a graph, a boss, a reward, a test and a README, in a new folder.

    Args:
        folder: Name of the project, of small letters, digits and underscores, or the path of a folder of that name.
    """
    files = begin_project(folder)
    commands = [command_line("check", folder), command_line("check", folder, "--learn")]
    plain = {"project": folder.name, "folder": str(folder), "files": [str(file) for file in files]}
    test = f"pytest {quoted(str(folder))}"
    missing = "" if find_spec("pytest") else ", after pip install pytest: none is installed here"
    screen.show(
        plain,
        *map(str, files),
        f"check it with: {commands[0]}; then: {commands[1]}",
        f"run its test with: {test}{missing}",
    )


def list_names(
    what: Literal[
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
    ],
    /,
    *,
    markdown: bool = False,
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
    if markdown and not screen.json:
        print(table.to_markdown(numbers=False))
        return
    screen.show(table.plain(), text_table("", table.headings, table.rows))
