"""How commands print; loads nothing that only training needs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, RenderableType

from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.progress import stage_progress
from soulsgraph_envs.core.config import to_json

T = TypeVar("T")
R = TypeVar("R")


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
    def repeated(self) -> tuple[str, ...]:
        """The words that another command on the same run needs as well."""
        return tuple(word for path in self.projects for word in ("--project", str(path)))

    def precompile(self, training: bool = False) -> None:
        """Compile what playing calls, or what training calls too, where it is not compiled yet."""
        # Imported here: a help text need not wait for it.
        from soulsgraph.runs.workers import precompile

        precompile(self.console, training)

    def each(self, name: str, items: Collection[T], function: Callable[[T], R], unit: str) -> list[R]:
        """Call a function with each item, with a line of progress, and return what it returns."""
        found: list[R] = []
        with stage_progress(name, len(items), self.console, unit=unit) as progress:
            for item in items:
                found.append(function(item))
                progress.advance(1)
        return found

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


def show(result: Any) -> None:
    """Print what a command returned, as plain values with `--json`, or as it shows itself; nothing of None."""
    if result is not None:
        parts = result.to_rich() if hasattr(result, "to_rich") else ()
        screen.show(result.to_dict(), *parts, passed=getattr(result, "passed", True))


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
