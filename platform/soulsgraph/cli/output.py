"""How commands print: for people, or as JSON; loads nothing that only training needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console, RenderableType
from tyro.conf import FlagCreatePairsOff, arg, subcommand

from soulsgraph.cli.placeholders import with_placeholders
from soulsgraph.progress import Display

#: A flag that is off unless given.
Flag = Annotated[bool, FlagCreatePairsOff]


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


DEFAULT_OUTPUT = OutputOptions()


@dataclass(frozen=True)
class RunOptions(OutputOptions):
    """Whose skills a run may have, and how results are printed."""

    project: Path | None = None
    """Folder of a project of your own, whose skills and graphs the run may have; installed ones are known already."""

    def __post_init__(self) -> None:
        if self.project is not None:
            # Imported here: few commands are given one.
            from soulsgraph_policies.projects import load_project

            load_project(self.project)

    @property
    def repeated(self) -> tuple[str, ...]:
        """The words that another command on the same run needs as well."""
        return () if self.project is None else ("--project", str(self.project))


DEFAULT_RUN = RunOptions()


def one_action(actions: Mapping[str, Callable[..., None]]) -> Any:
    """Return the type of an argument that does one of several actions while its options are read, as commands are."""
    kinds: list[Any] = [
        Annotated[None, subcommand(name, constructor=with_placeholders(action), prefix_name=False)]
        for name, action in actions.items()
    ]
    chosen: Any = reduce(or_, kinds)
    return Annotated[None, arg(constructor=chosen)]
