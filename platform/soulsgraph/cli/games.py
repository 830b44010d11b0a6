"""The commands of a machine with games: what it can do, setting a game up, saves, the stand-in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from soulsgraph.cli.output import command_line, screen
from soulsgraph.results.tables import TextTable, text_table
from soulsgraph_envs.core.compiling import cache_folder, cache_remark
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra, pip_install
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.machine import home_folder, usable_memory, usable_processors
from soulsgraph_envs.games.doctor import Check, Checks, examine
from soulsgraph_envs.games.link import SIMULATOR, GameSettings, load_games, save_game
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.saves import GAMES, Save, copy_save, find_saves, restore_save, the_save
from soulsgraph_envs.games.setup import TOPIC, answered, program_of, questions, running_game, try_keys
from soulsgraph_envs.games.standin.launch import DEFAULT_STAND_IN, StandInOptions

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
#: The releases that training is built on; others may have moved what it overrides.
_RELEASES = {"ray": "2.60.", "torch": "2."}


def doctor(
    *,
    driver: Literal["simulator", "memory"] = "simulator",
    games: Path | None = None,
    setup: Path | None = None,
    fleet: Path | None = None,
    wait_s: float = 0.0,
) -> None:
    """Report what this machine can do, with the remedy beside each failure; exit 1 if something fails.

    Args:
        driver: Driver to examine, if no games are given.
        games: TOML file of real-time games to examine, one after the other.
        setup: Games file to write for the game that runs here, or for that of --games: ask what cannot be read, press
            each bound key once and check what the game does.
        fleet: TOML file of a fleet whose head this machine is.
        wait_s: Seconds to wait for the PCs that the fleet's file names, to show which of their games could play here:
            it ends once every PC has answered. The code of every project that is known here is compared, too; of those
            that `project` names each PC must have the same.
    """
    if setup is None:
        examined = examine(load_games(games) if games else (GameSettings(driver=driver),))
    else:
        examined = set_up(setup, games)
    checks = check_machine() + examined + check_user() + check_training()
    if fleet is not None:
        check_extra("doctor --fleet", "train")
        # Imported here: nothing else of this needs a fleet's libraries.
        from soulsgraph.cli.fleet import check_fleet, check_pcs

        checks += check_fleet(fleet) if not wait_s else check_pcs(fleet, wait_s)
    report_checks(checks, setup)


def report_checks(checks: Sequence[Check], written: Path | None = None) -> None:
    """Print checks, and how to go on with a games file that was `written`; exit 1 if one fails."""
    passed = all(check.passed for check in checks)
    show(checks, screen.console)
    plain: dict[str, object] = {"passed": passed, "checks": [asdict(check) for check in checks]}
    if written is None:
        screen.show(plain, passed=passed)
        return
    go_on = command_line("evaluate", "RUN", "--games", written, "--episodes", "1")
    line = f"{written}: written, with dry_run, which presses keys and writes nothing into the game; try: {go_on}"
    screen.show(plain | {"games": str(written)}, line, passed=passed)


def show(checks: Sequence[Check], console: Console) -> None:
    """Print one table for each topic, remedies below what failed, and the verdict."""
    for topic in dict.fromkeys(check.topic for check in checks):
        table = TextTable("", "", "", title=topic, box=None, show_header=False, pad_edge=False)
        for check in checks:
            if check.topic == topic:
                # As text, in which brackets are not markup.
                found = Text("\n-> ".join(filter(None, (check.found, check.remedy))))
                table.add_row(Text(check.status, _COLOURS[check.status]), Text(check.name), found)
        console.print(table)
        console.print()
    verdict = "everything needed is there" if all(check.passed for check in checks) else "something needed is missing"
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in _COLOURS)
    console.print(f"{verdict}: {counts}")


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
    remedy = "set HOME to a folder that this user can write, or name folders by options, as `fleet host --spool`"
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


#: For a game that was just found, seconds.
_ATTACH_S = 5.0
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}
_PLACE = (
    "Every bound key is pressed once now, some longer. Put the character where nothing attacks it and where it has "
    "some metres of room on all sides, such as at a bonfire; then leave mouse and keyboard alone until it is done."
)


def set_up(file: Path, games: Path | None) -> list[Check]:
    """Set a game up, by a file of games or the one that runs here, and write its games file.

    It asks on standard error and reads answers from standard input.

    Raises:
        SoulsGraphError: if no game runs, or an answer is missing; nothing is written then.
    """
    settings = _settings(file, games)
    check_writable(file.parent)
    console = Console(stderr=True, soft_wrap=True)
    asked = questions(program_of(settings))
    console.print(f"{settings.map}: {len(asked)} questions that no reading answers; answer y or n.", highlight=False)
    answers = answered([(question, _ask(console, question.text)) for question in asked])
    checks = answers + examine((settings,))
    if all(check.passed for check in checks if check not in answers):
        console.print(_PLACE, highlight=False)
        _read(console, "Enter begins: ")
        checks += _keys(settings, console)
    else:
        skipped = Checks(TOPIC)
        skipped.skip("needs what failed above", "keys")
        checks += skipped.made
    save_game(file, replace(settings, dry_run=True))
    return checks


def _settings(file: Path, games: Path | None) -> GameSettings:
    """Return the one game of a file, of the file to write if it is there already, or the one that runs."""
    source = games or (file if file.exists() else None)
    if source is None:
        return running_game()
    settings = load_games(source)
    if len(settings) != 1 or settings[0].driver == SIMULATOR:
        found = f"{len(settings)} games" if len(settings) != 1 else "the simulator"
        raise SoulsGraphError(f"{source}: expected one game that runs, found {found}", "set games up one by one")
    return settings[0]


def _keys(settings: GameSettings, console: Console) -> list[Check]:
    made, failed = list[Check](), Checks(TOPIC)
    with failed.failing("keys", "show the game's window, load a character, and try again"):
        link = make_link(settings)
        try:
            link.attach(_ATTACH_S)
            link.focus()
            for check in try_keys(link, settings):
                console.print(f"{check.status:4}  {check.name}: {check.found}", highlight=False)
                made.append(check)
        finally:
            link.close()
    return made + failed.made


def _ask(console: Console, question: str) -> bool:
    while True:
        answer = _read(console, f"{question} [y/n] ").strip().lower()
        if answer in _ANSWERS:
            return _ANSWERS[answer]


def _read(console: Console, prompt: str) -> str:
    try:
        return console.input(prompt, markup=False)
    except EOFError:
        console.print()
        raise SoulsGraphError(
            "doctor --setup: expected an answer, found the end of what is typed", "answer in a terminal"
        ) from None


def saves(
    what: Literal["list", "copy", "restore"] = "list",
    game: str | None = None,
    copied: Path | None = None,
    /,
    *,
    folder: Path | None = None,
    out: Path = Path("saves"),
) -> None:
    """Find the saves of a game on this PC, copy them before an agent plays, and put a copy back afterwards.

    The game must not run. Its whole folder is copied, settings included.

    Args:
        what: list: the saves of the known games that this user has; copy: those of a game, into a new folder; restore:
            replace them by a copy, of which the present ones are copied first.
        game: Name of the game, as the list has it.
        copied: Folder of the copy to put back.
        folder: Folder of the saves, where they lie elsewhere or there are several.
        out: Folder in which a copy is made.
    """
    if what == "list":
        _list_saves()
        return
    if game is None or (copied is None) == (what == "restore"):
        raise SoulsGraphError(f"saves {what}: expected a game{' and its copy' * (what == 'restore')}; name it.")
    save = the_save(game, folder)
    if copied is None:
        made = copy_save(save, out)
        files = [str(path.relative_to(made.folder)) for path in made.files]
        back = command_line("game", "saves", "restore", game, made.folder)
        plain = {"game": made.game, "folder": str(made.folder), "files": files}
        screen.show(plain, f"copied to {made.folder}; put it back with: {back}")
        return
    before = restore_save(Save(game, copied), save, out)
    shown = {"game": game, "folder": str(save.folder), "before": str(before.folder)}
    screen.show(shown, f"{save.folder}: as in {copied} again; what was there is in {before.folder}")


def _list_saves() -> None:
    found = [save for game in GAMES for save in find_saves(game)]
    rows = [(save.game, str(save.folder), ", ".join(path.name for path in save.files)) for save in found]
    plain = [{"game": game, "folder": folder, "files": files.split(", ")} for game, folder, files in rows]
    missing = [game for game in GAMES if game not in {save.game for save in found}]
    lines = [f"{game}: no save where Windows and Steam's Proton put it" for game in missing]
    screen.show(plain, *([text_table("", ("game", "folder", "saves"), rows)] if rows else []), *lines)


def standin(*, options: Annotated[StandInOptions, Parameter(name="*")] = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's.

    Once a driver can attach to it, it prints a line that begins with "ready".
    """
    from soulsgraph_envs.games.standin.program import run

    def report(ready: dict[str, object]) -> None:
        line = ", ".join(f"{name} {value}" for name, value in ready.items())
        print(to_json({"event": "ready", **ready}) if screen.json else f"ready: {line}", flush=True)

    screen.precompile()
    run(options, report)
