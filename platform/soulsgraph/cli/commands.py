"""The commands: where each is, and the help that shows them by what people do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from inspect import Parameter as Argument
from inspect import signature
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.extras import DISTRIBUTION, installed_version

if TYPE_CHECKING:
    from cyclopts import App

DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."
#: The groups, what each is for, and for each command in it the function that it is, as MODULE:NAME of this package.
GROUPS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "": (
        "What most people need",
        {
            "train": "training:train",
            "watch": "fights:watch",
            "play": "fights:play",
            "evaluate": "training:evaluate",
            "adapt": "shifts:adapt",
            "zoo": "agents:zoo",
            "report": "reports:report",
            "check": "reports:check",
            "list": "projects:list_names",
            "doctor": "games:doctor",
            "init": "projects:init",
            "supervise": "supervise:supervise",
        },
    ),
    "data": (
        "Recorded fights; skills as files of other programs; the simulator fitted to a game",
        {
            "record": "fights:record",
            "clone": "agents:clone",
            "export": "agents:export",
            "import": "agents:import_sb3",
            "calibrate": "agents:calibrate",
        },
    ),
    "study": (
        "Many runs on the same seeds: the paper's study, continual learning, search, comparisons",
        {
            "reproduce": "studies:reproduce",
            "continual": "studies:continual",
            "sweep": "studies:sweep",
            "compare": "studies:compare",
        },
    ),
    "fleet": (
        "Game PCs that play for a head",
        {
            "host": "host:host",
            "pause": "host:pause",
            "status": "fleet:status",
            "token": "fleet:token",
            "certificates": "fleet:certificates",
        },
    ),
    "game": ("Games that run on this machine", {"saves": "games:saves", "standin": "games:standin"}),
}
#: Other names of commands.
ALIASES = {"curriculum": "train"}
#: What a newcomer types, and what it does.
_EXAMPLES = (
    ("watch iudex-phase1-best-0", "watch a trained agent fight in a window"),
    ("train", "train an agent of five skills"),
    ("evaluate runs/curriculum", "play 400 fights and print how many it wins"),
    ("adapt iudex-phase1-best-0 --scenario vordt --run runs/vordt", "adapt a trained agent to another boss"),
    ("init duel", "begin a skill, a graph and a boss of your own"),
)
_MORE = (
    ("COMMAND --help", "every option of a command, with its unit and default"),
    ("--version", "the version that is installed"),
    ("--completion bash|zsh|fish", "print the script by which a shell completes commands and options"),
)
_WIDEST = 110


def command_lines() -> list[tuple[str, ...]]:
    """Return the words of every command."""
    return [(group, name) if group else (name,) for group, (_, found) in GROUPS.items() for name in found]


def named(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words that name a command, or a group alone; empty where there are none.

    Raises:
        UnknownNameError: for a command that does not exist.
    """
    first = ALIASES.get(words[0], words[0]) if words else ""
    if not first or first.startswith("-"):
        return ()
    top = GROUPS[""][1]
    if first in top:
        return (first,)
    if first not in GROUPS:
        raise UnknownNameError("command", first, (*top, *filter(None, GROUPS), *ALIASES))
    if not words[1:] or words[1].startswith("-"):
        return (first,)
    if words[1] not in GROUPS[first][1]:
        raise UnknownNameError(f"command of {first}", words[1], GROUPS[first][1])
    return (first, words[1])


def load(words: Sequence[str]) -> Callable[..., None]:
    """Return the function of a command."""
    module, name = GROUPS[words[0] if words[1:] else ""][1][words[-1]].split(":")
    function: Callable[..., None] = getattr(import_module(f"{__package__}.{module}"), name)
    return function


def make_app(lines: Sequence[tuple[str, ...]]) -> App:
    """Return the command line with these commands: what a command needs takes up to a second to import."""
    # Imported here: the list of commands and the version are printed without it.
    from cyclopts import App, Parameter

    usual = Parameter(negative_iterable=(), negative_bool=())
    app = App(
        "soulsgraph",
        suppress_keyboard_interrupt=False,
        help=DESCRIPTION,
        help_format="markdown",
        version=version(),
        default_parameter=usual,
    )
    groups = {"": app}
    for words in lines:
        group = words[0] if words[1:] else ""
        if group not in groups:
            groups[group] = App(group, help=GROUPS[group][0])
            app.command(groups[group])
        other = [alias for alias, name in ALIASES.items() if (name,) == words]
        groups[group].command(_with_output(load(words)), name=[words[-1], *other])
    return app


def _with_output(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the options of all commands as well: how it prints, and whose skills it knows."""
    from cyclopts import Parameter

    from soulsgraph.cli.output import screen

    @wraps(function)
    def command(*values: Any, json: bool = False, project: tuple[Path, ...] = (), **options: Any) -> None:
        screen.json, screen.projects = json, project
        if project:
            # Imported here: few commands are given one.
            from soulsgraph_policies.agents.projects import load_project

            for folder in project:
                load_project(folder)
        function(*values, **options)

    printed = Parameter(help="Print results as JSON only, for programs.")
    own = Parameter(help="Folder of a project whose skills it may use; those that are installed are known.")
    added = {"json": (Annotated[bool, printed], False), "project": (Annotated[tuple[Path, ...], own], ())}
    parameters, hints = [*signature(function).parameters.values()], get_type_hints(function, include_extras=True)
    keywords = [one for one in parameters if one.kind is Argument.VAR_KEYWORD]
    parameters = [one for one in parameters if one not in keywords]
    for name, (hint, default) in added.items():
        hints[name] = hint
        parameters.append(Argument(name, Argument.KEYWORD_ONLY, default=default, annotation=hint))
    del vars(command)["__wrapped__"]  # Its annotations would be read.
    command.__annotations__ = hints
    vars(command)["__signature__"] = signature(function).replace(parameters=[*parameters, *keywords])
    return command


def help_text(group: str = "") -> str:
    """Return the commands of a group, or all with examples, a line each."""
    width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
    widest = max(len(" ".join(words)) for words in command_lines()) + 4
    shown = [group] if group else [*GROUPS]
    parts = [f"usage: soulsgraph {f'{group} ' if group else ''}COMMAND [OPTIONS]"]
    parts += [] if group else [fill(DESCRIPTION, width)]
    for one in shown:
        title, commands = GROUPS[one]
        named = {" ".join(filter(None, (one, name))): summary(call) for name, call in commands.items()}
        parts.append(
            "\n".join([f"{title}:", *(_line(f"  {name}", text, widest, width) for name, text in named.items())])
        )
    if not group:
        for title, shown_lines in {"Examples": _EXAMPLES, "More": _MORE}.items():
            lines = (f"  soulsgraph {words}\n      {what}" for words, what in shown_lines)
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)


def summary(call: str) -> str:
    """Return the first line of a command's help, without importing what it needs: MODULE:NAME of this package."""
    module, name = call.split(":")
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    found = re.search(rf'^def {name}\(.*?"""(.*?)(?:\n\n|""")', text, re.DOTALL | re.MULTILINE)
    assert found is not None, "every command has a docstring"
    return " ".join(found[1].split())


def version() -> str:
    """Return the version that is installed; a tree that is not installed has none."""
    return f"{DISTRIBUTION} {installed_version()}"


def _line(name: str, text: str, indent: int, width: int) -> str:
    return fill(text, max(width, indent + 20), initial_indent=name.ljust(indent), subsequent_indent=" " * indent)
