"""`soulsgraph doctor`: what this machine can do, and the tables of such checks."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.cli.remedies import command_line
from soulsgraph.results.terminal import TextTable
from soulsgraph_envs.core.compiling import cache_folder, cache_remark
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.machine import home_folder, usable_memory, usable_processors
from soulsgraph_envs.games.doctor import Check, Checks
from soulsgraph_envs.games.link import GameSettings, load_games

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
#: The releases that training is built on; others may have moved what it overrides.
_RELEASES = {"ray": "2.60.", "torch": "2."}


def doctor(
    output: OutputOptions = DEFAULT_OUTPUT,
    driver: Literal["simulator", "memory", "siphon"] = "simulator",
    games: Path | None = None,
    setup: Path | None = None,
    fleet: Path | None = None,
) -> None:
    """Report what this machine can do, with the remedy beside each failure; exit 1 if something fails.

    Args:
        driver: Driver to examine, if no games are given.
        games: TOML file of real-time games to examine, one after the other.
        setup: Games file to write for the game that runs here, or is that of the games given: ask what no reading
            shows, press each bound key once and look at what the game does.
        fleet: TOML file of a fleet whose head this machine is; `soulsgraph fleet plan` examines its game PCs.
    """
    # Imported here: no other command needs the drivers of real-time games.
    from soulsgraph_envs.games.doctor import examine

    written: list[str] = []
    if setup is not None:
        from soulsgraph.cli.setup import set_up

        examined = set_up(setup, games)
        go_on = command_line("evaluate", "RUN", "--games", setup, "--episodes", "1")
        written = [f"{setup}: written, with dry_run, which presses keys and writes nothing into the game; try: {go_on}"]
    else:
        examined = examine(load_games(games) if games else (GameSettings(driver=driver),))
    checks = check_machine() + examined + check_user() + check_training()
    if fleet is not None:
        checks += _check_fleet(fleet)
    passed = all(check.passed for check in checks)
    show(checks, output.console)
    plain: dict[str, object] = {"passed": passed, "checks": [asdict(check) for check in checks]}
    output.show(plain if setup is None else plain | {"games": str(setup)}, *written)
    if not passed:
        sys.exit(1)


def _check_fleet(file: Path) -> list[Check]:
    # Imported here: nothing else of this needs a fleet's libraries.
    from soulsgraph.cli.fleet_checks import check_fleet

    return check_fleet(file)


def check_machine() -> list[Check]:
    """Show the memory and the processors that this process may use, and what of the machine's a limit keeps from it."""
    # Imported here: a game PC starts without it.
    import psutil

    checks, memory, machine = Checks("This machine"), usable_memory(), psutil.virtual_memory()
    limit = f", of {_gib(machine.total)} in the machine" if memory.limit < machine.total else ""
    checks.ok("memory", f"{_gib(memory.available)} free of {_gib(memory.limit)} that this process may use{limit}")
    processors, all_processors = usable_processors(), os.cpu_count() or 1
    further = f", of {all_processors} in the machine" if processors < all_processors else ""
    checks.ok("processors", f"{processors} that this process may use{further}")
    return checks.made


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def check_user() -> list[Check]:
    """Check that this user has places for what lasts: a home, and compiled code."""
    checks, home, code = Checks("This user"), home_folder(), cache_folder()
    writable = home is not None and os.access(home, os.W_OK)
    lacks = "none" if home is None else f"{home}, which can't be written"
    remedy = "set HOME to a folder that this user can write, or name folders by options, as `host --spool`"
    checks.expect("home", writable, str(home) if writable else lacks, remedy)
    found, _, remedy = cache_remark().rpartition("; ")
    checks.expect("compiled code", not found, f"in {code}" if not found else found.partition(": ")[2], remedy)
    return checks.made


def check_training() -> list[Check]:
    """Check the libraries that training needs, where they are installed: a game PC, as one, does not train."""
    checks, install = Checks("Training"), pip_install("train")
    if not any(map(find_spec, _RELEASES)):
        checks.skip(f"not installed; to train here: {install}", "training")
        return checks.made
    for name, release in _RELEASES.items():
        try:
            version = str(import_module(name).__version__)
        except Exception as error:
            # A broken library may raise anything while it is imported.
            checks.fail(name, f"its import fails: {error}", install)
            continue
        checks.expect(name, version.startswith(release), version, f"install {name}=={release}*: others are not tried")
    return checks.made


def show(checks: list[Check], console: Console) -> None:
    """Print one table for each topic, remedies below what failed, and the verdict."""
    for topic in dict.fromkeys(check.topic for check in checks):
        table = TextTable("", "", "", title=topic, box=None, show_header=False, pad_edge=False)
        for check in checks:
            if check.topic == topic:
                # As text, in which brackets are not markup.
                found = Text("\n-> ".join(filter(None, (check.found, check.remedy))))
                table.add_row(Text(check.status, _COLOURS[check.status]), Text(check.name), found)
        console.print(table, highlight=False)
        console.print()
    verdict = "everything needed is there" if all(check.passed for check in checks) else "something needed is missing"
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in _COLOURS)
    console.print(f"{verdict}: {counts}", highlight=False)
