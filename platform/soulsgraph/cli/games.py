"""`soulsgraph doctor`, and the commands of the stand-in game and of the Siphon server before a game."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from soulsgraph.cli.options import DEFAULT_OUTPUT, OutputOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.drivers.doctor.machine import Check, Checks
from soulsgraph_envs.drivers.memory.reader import find_process
from soulsgraph_envs.drivers.realtime.link import GameSettings, load_games, save_game
from soulsgraph_envs.standin.options import DEFAULT_STAND_IN, StandInOptions
from soulsgraph_envs.standin.process import StandInProcess, ended_by_signals
from soulsgraph_envs.standin.siphon.serving import DEFAULT_SERVING, Serving, settings_of

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
    from soulsgraph_envs.drivers.doctor.examination import examine

    wanted = load_games(games) if games else (GameSettings(driver=driver),)
    checks = examine(wanted) + check_training()
    passed = all(check.passed for check in checks)
    show(checks, output.console)
    output.show({"passed": passed, "checks": [asdict(check) for check in checks]})
    if not passed:
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
        # The last column is folded, not cut: a remedy may end with a path.
        columns = "", "", Column(overflow="fold")
        table = Table(*columns, title=topic, title_justify="left", box=None, show_header=False, pad_edge=False)
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


def serve_siphon(
    serving: Serving = DEFAULT_SERVING,
    output: OutputOptions = DEFAULT_OUTPUT,
    map: str = StandInOptions.map,
    speed: float = StandInOptions.speed,
    pid: int = 0,
    process: str = "",
    settings: Path | None = None,
) -> None:
    """Serve a game of this machine to Siphon clients: a stand-in, started for it, or a process that runs.

    Once it serves it prints a line that begins with "ready". A stand-in that ended is started again
    when a client initializes the memory.

    Args:
        map: Address map of the stand-in, and of the games file.
        speed: Factor of the stand-in's clock, above 0 to 3.
        pid: Process to serve in place of a stand-in.
        process: Name of the process to serve in place of a stand-in, such as DarkSoulsIII.exe.
        settings: Games file to write once it serves, for commands that take --games.
    """
    if pid and process:
        raise SoulsGraphError("serve-siphon: expected --pid or --process, found both; leave one out.")
    serving.check()
    from soulsgraph_envs.standin.siphon.server import SiphonServer

    running = bool(pid or process)
    game: AbstractContextManager[Callable[[], int]] = _stand_in(map, speed, serving.display)
    if running:
        game = nullcontext(lambda: pid or find_process(process))
    with ended_by_signals(), game as find_pid:
        server = SiphonServer(serving, find_pid, captured_slots=not running)
        try:
            if settings is not None:
                save_game(settings, settings_of(serving, server.address, map, speed))
            ready = {"address": server.address, "pid": find_pid()}
            if output.json:
                print(dumps({"ready": ready}), flush=True)
            line = f"ready at {ready['address']}, process {ready['pid']}; end it with Ctrl-C"
            output.console.print(line, soft_wrap=True)
            server.wait()
        finally:
            server.close()


@contextmanager
def _stand_in(map: str, speed: float, display: str) -> Iterator[Callable[[], int]]:
    with StandInProcess(StandInOptions(map=map, speed=speed, display=display)) as process:
        yield process.living_pid


def standin(options: StandInOptions = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's.

    Once it can be attached it prints a line that begins with "ready". On standard input it takes
    commands, one a line: crash, move, hang [S], freeze [S], stall [S], drop [S], pause, speed N, die,
    state, quit.
    """
    from soulsgraph_envs.standin.program import run

    run(options)
