"""The commands: where each is, and the help that shows them by what people do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.extras import DISTRIBUTION, installed_version

if TYPE_CHECKING:
    from cyclopts import App

DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."
#: The groups, and what each is for; commands without one come first.
GROUPS: Mapping[str, str] = {
    "": "What most people need",
    "data": "Recorded fights; skills as files of other programs; the simulator fitted to a game",
    "study": "Many runs on the same seeds: the paper's study, continual learning, search, comparisons",
    "fleet": "Game PCs that play for a head",
    "game": "Games that run on this machine",
}
#: The function that each command is, as MODULE:NAME of `soulsgraph`.
COMMANDS: Mapping[str, str] = {
    "train": "api:train",
    "watch": "cli.fights:watch",
    "play": "cli.fights:play",
    "evaluate": "cli.evaluating:evaluate",
    "adapt": "api:Run.adapt",
    "zoo": "cli.agents:zoo",
    "report": "cli.reports:report",
    "check": "cli.reports:check",
    "list": "cli.projects:list_names",
    "doctor": "cli.games:doctor",
    "init": "cli.projects:init",
    "supervise": "cli.supervise:supervise",
    "data record": "cli.fights:record",
    "data clone": "cli.agents:clone",
    "data export": "cli.agents:export",
    "data import": "cli.agents:import_sb3",
    "data calibrate": "cli.agents:calibrate",
    "study reproduce": "cli.studies:reproduce",
    "study continual": "cli.studies:continual",
    "study sweep": "tune.sweep:sweep",
    "study compare": "cli.studies:compare",
    "fleet host": "cli.host:host",
    "fleet pause": "cli.host:pause",
    "fleet status": "cli.fleet:status",
    "fleet token": "cli.fleet:token",
    "fleet certificates": "cli.fleet:certificates",
    "game saves": "cli.games:saves",
    "game standin": "cli.games:standin",
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


def named(words: Sequence[str]) -> str:
    """Return the command that words name, or a group alone; empty where they begin with neither.

    Raises:
        UnknownNameError: for a command that does not exist.
    """
    if not words or words[0].startswith("-"):
        return ""
    first = ALIASES.get(words[0], words[0])
    if first in COMMANDS:
        return first
    if first not in GROUPS:
        raise UnknownNameError("command", first, (*_commands_of(""), *filter(None, GROUPS), *ALIASES))
    if not words[1:] or words[1].startswith("-"):
        return first
    if words[1] not in (own := _commands_of(first)):
        raise UnknownNameError(f"command of {first}", words[1], own)
    return f"{first} {words[1]}"


def _commands_of(group: str) -> list[str]:
    """Return the names of a group's commands, without the group's; of none those that stand alone."""
    return [name for own, _, name in (line.rpartition(" ") for line in COMMANDS) if own == group]


def load(name: str) -> Callable[..., Any]:
    """Return the function of a command."""
    module, _, attribute = COMMANDS[name].partition(":")
    function: Callable[..., Any] = attrgetter(attribute)(import_module(f"soulsgraph.{module}"))
    return function


def make_app(names: Iterable[str]) -> App:
    """Return the command line with these commands: what a command needs takes up to a second to import."""
    # Imported here: the list of commands and the version are printed without it.
    from cyclopts import App, Parameter

    from soulsgraph.cli.options import as_command

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
    for line in names:
        group, _, name = line.rpartition(" ")
        if group not in groups:
            app.command(groups.setdefault(group, App(group, help=GROUPS[group])))
        other = [alias for alias, own in ALIASES.items() if own == line]
        groups[group].command(as_command(load(line)), name=[name, *other])
    return app


def help_text(group: str = "") -> str:
    """Return the commands of a group, or all with examples, a line each."""
    width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
    widest = max(map(len, COMMANDS)) + 4
    parts = [f"usage: soulsgraph {f'{group} ' if group else ''}COMMAND [OPTIONS]"]
    parts += [] if group else [fill(DESCRIPTION, width)]
    for one in [group] if group else GROUPS:
        names = [f"{one} {name}".strip() for name in _commands_of(one)]
        lines = [_line(f"  {name}", summary(COMMANDS[name]), widest, width) for name in names]
        parts.append("\n".join([f"{GROUPS[one]}:", *lines]))
    for title, shown in ({} if group else {"Examples": _EXAMPLES, "More": _MORE}).items():
        parts.append("\n".join([f"{title}:", *(f"  soulsgraph {words}\n      {what}" for words, what in shown)]))
    return "\n\n".join(parts)


def summary(call: str) -> str:
    """Return the first line of a command's help, without importing what it needs: MODULE:NAME of `soulsgraph`."""
    module, name = call.split(":")
    path = Path(__file__).parents[1].joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    found = re.search(rf'^ *def {name.rpartition(".")[2]}\(.*?"""(.*?)(?:\n\n|""")', text, re.DOTALL | re.MULTILINE)
    assert found is not None, "every command has a docstring"
    return " ".join(found[1].split())


def version() -> str:
    """Return the version that is installed; a tree that is not installed has none."""
    return f"{DISTRIBUTION} {installed_version()}"


def _line(name: str, text: str, indent: int, width: int) -> str:
    return fill(text, max(width, indent + 20), initial_indent=name.ljust(indent), subsequent_indent=" " * indent)
