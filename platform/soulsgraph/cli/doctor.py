"""`soulsgraph doctor`: what this machine can do, on one page."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soulsgraph.advice import silence_advice
from soulsgraph.cli.options import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.cli.place import make_console, print_json
from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.live.settings import GameSettings, load_games

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
#: The releases that training is built on; others may have moved what it overrides.
_RELEASES = {"ray": "2.60.", "torch": "2."}
_INSTALL = "install this package anew, as its readme says"


def doctor(
    output: OutputOptions = DEFAULT_OUTPUT,
    driver: Literal["simulator", "memory", "siphon"] = "simulator",
    games: Path | None = None,
) -> None:
    """Report what this machine can do, with the remedy beside each failure; exit 1 if something fails.

    Args:
        driver: Driver to examine, if no games are given.
        games: TOML file of real-time games to examine, one after the other.
    """
    # Imported here: no other command needs the drivers of real-time games.
    from soulsgraph_envs.doctor.examination import examine

    silence_advice()
    wanted = load_games(games) if games else (GameSettings(driver=driver),)
    checks = examine(wanted) + check_training()
    if output.json:
        print_json({"passed": _passed(checks), "checks": [asdict(check) for check in checks]})
    else:
        show(checks, make_console(output))
    if not _passed(checks):
        sys.exit(1)


def check_training() -> list[Check]:
    """Check the libraries that training needs."""
    checks = Checks("Training")
    for name, release in _RELEASES.items():
        try:
            version = str(import_module(name).__version__)
        except Exception as error:
            # A broken library may raise anything while it is imported.
            checks.fail(name, f"its import fails: {error}", _INSTALL)
            continue
        checks.judge(name, version.startswith(release), version, f"install {name}=={release}*: others are not tried")
    return checks.made


def show(checks: list[Check], console: Console) -> None:
    """Print one table for each topic, remedies below what failed, and the verdict."""
    for topic in dict.fromkeys(check.topic for check in checks):
        table = Table(title=topic, title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column()
        # Folded, not cut: a remedy may end with a path.
        table.add_column(overflow="fold")
        for check in checks:
            if check.topic == topic:
                table.add_row(Text(check.status, _COLOURS[check.status]), Text(check.name), _lines(check))
        console.print(table, highlight=False)
        console.print()
    verdict = "everything needed is there" if _passed(checks) else "something needed is missing"
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in _COLOURS)
    console.print(f"{verdict}: {counts}", highlight=False)


def _lines(check: Check) -> Text:
    """Return the finding and the remedy below it, as text in which brackets are not markup."""
    return Text("\n-> ".join(filter(None, (check.found, check.remedy))))


def _passed(checks: list[Check]) -> bool:
    return all(check.passed for check in checks)
