"""The command line: the name and description of every command, and the module of the one that is asked for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, configure
from tyro.extras import SubcommandApp

#: The module of this package in which every command is a function, in the order of the help.
COMMANDS = {
    **dict.fromkeys(("adapt", "transfer", "recovery", "retention"), "adapting"),
    "report": "reproducing",
    **dict.fromkeys(("standin", "doctor", "serve-siphon"), "games"),
    "reproduce": "reproducing",
    **dict.fromkeys(("curriculum", "train", "baseline", "evaluate", "table", "skills", "bench"), "commands"),
}


def make_app(words: Collection[str]) -> SubcommandApp:
    """Return the command line; only commands among `words` can be run, or all if none is: the others have no options.

    What a command needs takes a second or more to import, for which a list of commands need not wait.
    """
    app = SubcommandApp()
    asked = {word.replace("_", "-") for word in words}
    if asked.isdisjoint(COMMANDS) and not asked <= {"-h", "--help"}:
        asked = set(COMMANDS)  # For completion in a shell, and for options whose command is missing.
    for name, module in COMMANDS.items():
        if name in asked:
            function: Callable[..., None] = getattr(import_module(f"soulsgraph.cli.{module}"), name.replace("-", "_"))
            # A flag of a study's plan can be given either way.
            flags = () if name == "reproduce" else (FlagCreatePairsOff,)
            app.command(configure(OmitArgPrefixes, *flags)(function))
        else:
            app.command(name=name, help=_description(module, name))(_not_asked_for)
    return app


def _not_asked_for() -> None:
    raise AssertionError("a command that was not among the words of the command line")


def _description(module: str, name: str) -> str:
    """Return a command's description from its source, which is not imported."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    doc = next(ast.get_docstring(function) for function in functions if function.name == name.replace("-", "_"))
    return (doc or "").partition("\n\nArgs:")[0]
