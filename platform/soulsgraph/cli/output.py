"""How commands print; loads nothing that only training needs."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.progress import Display
from soulsgraph_envs.core.config import to_json


class Screen:
    """Where a command prints: for people, or with `--json` for programs; and the projects that `--project` named."""

    json = False
    projects: tuple[Path, ...] = ()

    @property
    def console(self) -> Console:
        """The console for people, silent with `--json`: standard output is then for programs.

        Where standard output is no terminal its lines have any length.
        """
        return OutputConsole(quiet=self.json)

    @property
    def display(self) -> Display:
        """How progress is shown."""
        return "silent" if self.json else "auto"

    @property
    def repeated(self) -> tuple[str, ...]:
        """The words that another command on the same run needs as well."""
        return tuple(word for path in self.projects for word in ("--project", str(path)))

    def precompile(self, training: bool = False) -> None:
        """Compile what playing calls, or what training calls too, where it is not compiled yet."""
        # Imported here: a help text need not wait for it.
        from soulsgraph.runs.workers import precompile, precompile_playing

        (precompile if training else precompile_playing)(self.console)

    def show(self, plain: Any, *parts: RenderableType, passed: bool = True) -> None:
        """Print results: plain values as one JSON document with `--json`, tables and lines for people otherwise.

        Of a check that has not `passed` the command ends with 1.
        """
        if self.json:
            print(to_json(plain, indent=2))
        for part in parts:
            self.console.print(part)
        if not passed:
            sys.exit(1)


#: That of the command that runs.
screen = Screen()
#: A word that needs no quotes in Windows' shells, of which each has other letters of its own.
_PLAIN = re.compile(r"[\w.:\\/=-]+")


def quoted(word: str) -> str:
    """Return a word as a shell of this system reads it."""
    if sys.platform != "win32":
        return shlex.quote(word)
    # To Windows' cmd single quotes are letters like others.
    return word if _PLAIN.fullmatch(word) else f'"{word}"'


def command_line(*words: object) -> str:
    """Return a `soulsgraph` command line, quoted for a shell of this system."""
    return " ".join(["soulsgraph", *(quoted(str(word)) for word in words)])
