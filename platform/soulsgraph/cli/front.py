"""The front door of the command line: the commands by what people do, and the help that shows them."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from textwrap import fill

from soulsgraph_envs.core.distribution import WHOLE, installed, is_host
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.files import writing

DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."

#: What people do, in the order of the help; for each command the module of this package in which it is a function.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Watch and play": {
        "watch": "watch",
        "play": "play",
        "replay": "pages",
        "zoo": "zoo",
    },
    "Train": {
        "curriculum": "commands",
        "train": "commands",
        "baseline": "commands",
        "supervise": "supervise",
        "clone": "data",
    },
    "Evaluate": {
        "evaluate": "commands",
        "table": "commands",
        "skills": "commands",
    },
    "Adapt to another fight": {
        "adapt": "adapting",
        "transfer": "adapting",
        "recovery": "adapting",
        "retention": "adapting",
    },
    "Make skills of your own": {
        "init": "projects",
        "validate": "projects",
        "smoke": "projects",
        "compare": "projects",
        "list": "projects",
    },
    "Record and exchange": {
        "data": "data",
        "export": "zoo",
        "import-sb3": "zoo",
    },
    "Repeat the paper's study": {
        "reproduce": "commands",
        "report": "pages",
    },
    "Running games": {
        "doctor": "doctor",
        "standin": "games",
        "serve-siphon": "games",
        "host": "host",
        "pause": "host",
        "resume": "host",
        "fleet": "fleet",
    },
    "Measure speed": {
        "bench": "bench",
    },
}
#: The commands that need nothing but what the distribution for game PCs installs.
HOST_COMMANDS = ("host", "pause", "resume", "standin", "doctor", "serve-siphon")
#: The module of every command.
COMMANDS = {name: module for commands in GROUPS.values() for name, module in commands.items()}

#: What a newcomer types, and what it does.
_EXAMPLES = (
    ("watch iudex-phase1-best-0", "watch a trained agent fight in a window"),
    ("curriculum --run runs/first", "train an agent of five skills"),
    ("evaluate runs/first", "play 400 fights and print how many it wins"),
    ("adapt iudex-phase1-best-0 --scenario vordt --run runs/vordt", "adapt a trained agent to another boss"),
    ("init duel", "begin a skill, a graph and a boss of your own"),
    ("standin --speed 3", "start a game that can be attached to"),
    ("host --help", "let this PC's games play for a head that trains"),
)
#: An option of tyro's, which writes the script by which a shell completes words.
_COMPLETION, _SHELLS = "--tyro-write-completion", ("bash", "zsh")
_MORE = (
    ("COMMAND --help", "every option of a command, with its unit and default"),
    ("--version", "the version that is installed"),
    (f"{_COMPLETION} bash|zsh FILE", "the script by which a shell completes commands and options"),
)
_WIDEST = 110
#: Similarity from which on an option counts as misspelt, as difflib measures it.
_ALIKE = 0.7


def front_page(words: list[str]) -> str | None:
    """Return what is printed where no command is asked for: the help or the version; None if there is a command.

    Raises:
        UnknownNameError: for a command that does not exist.
        SoulsGraphError: for an option before the command.
    """
    first = words[0] if words else ""
    if first in ("", "-h", "--help"):
        return help_text(min(shutil.get_terminal_size().columns - 2, _WIDEST))
    if first == "--version":
        return _version()
    if first == _COMPLETION:
        _check_completion(words[1:])
        return None
    if first.startswith("-"):
        raise SoulsGraphError(f"expected a command first, found {shown(first)}; see soulsgraph --help.")
    known = commands_here()
    if first.replace("_", "-") not in known:
        raise UnknownNameError("command", first, known)
    return None


def commands_here() -> Mapping[str, str]:
    """Return the commands of the distribution that is installed, and each one's module."""
    return {name: COMMANDS[name] for name in HOST_COMMANDS} if is_host() else COMMANDS


def help_text(width: int) -> str:
    """Return the commands by what people do, a line each, with examples."""
    known = commands_here()
    widest = max(map(len, known)) + 4
    parts = ["usage: soulsgraph COMMAND [OPTIONS]", fill(DESCRIPTION, width)]
    for group, commands in GROUPS.items():
        lines = [_line(f"  {name}", _summary(name), widest, width) for name in commands if name in known]
        parts += ["\n".join([f"{group}:", *lines])] if lines else []
    examples = [f"  soulsgraph {words}\n      {what}" for words, what in _EXAMPLES if words.split()[0] in known]
    more = [f"  soulsgraph {words}\n      {what}" for words, what in _MORE]
    return "\n\n".join([*parts, "\n".join(["Examples:", *examples]), "\n".join(["More:", *more])])


def command_lines() -> list[tuple[str, ...]]:
    """Return every command that can be asked for its help, each action of those that have several by itself."""
    lines: list[tuple[str, ...]] = []
    for name, module in COMMANDS.items():
        actions = getattr(import_module(f"{__package__}.{module}"), "ACTIONS", ()) if name == module else ()
        lines += [(name, action) for action in actions] or [(name,)]
    return lines


def suggestions(words: Sequence[str], help_text: str) -> list[str]:
    """Return for each word that a command's help does not have, but nearly, the option or choice that is meant."""
    options = [*dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", help_text))]
    choices = re.split(r"[,\s│]+", ",".join(re.findall(r"\{([\w.,\s│-]+)\}", help_text)))
    meant = []
    for word in words:
        name, known = word.partition("=")[0].replace("_", "-"), options if word.startswith("--") else choices
        close = [] if name in known else get_close_matches(name, known, n=1, cutoff=_ALIKE)
        meant += [f"{word.partition('=')[0]}: did you mean {close[0]}?"] if close else []
    return meant


def _check_completion(words: Sequence[str]) -> None:
    """Check what tyro does not: the shell, and that the script's file can be written."""
    if len(words) != 2 or words[0] not in _SHELLS or Path(words[1]).is_dir():
        found = shown(" ".join(words)) if words else "none"
        raise SoulsGraphError(f"{_COMPLETION}: expected {' or '.join(_SHELLS)} and a file to write, found {found}.")
    with writing(words[1]):
        Path(words[1]).parent.mkdir(parents=True, exist_ok=True)


def _line(name: str, text: str, indent: int, width: int) -> str:
    return fill(text, max(width, indent + 20), initial_indent=name.ljust(indent), subsequent_indent=" " * indent)


def _summary(name: str) -> str:
    """Return a command's first line from its source, which is not imported: that takes seconds."""
    tree = ast.parse(Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    doc = next(ast.get_docstring(function) for function in functions if function.name == name.replace("-", "_"))
    return (doc or "").partition("\n")[0]


def _version() -> str:
    """Return the version that is installed; a tree that is not installed has none."""
    return "\n".join(f"{name} {version}" for name, version in installed().items()) or f"{WHOLE}, not installed"
