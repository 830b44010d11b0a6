"""The commands of a machine with games: what it can do, setting a game up, saves, the stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.prompt import Confirm
from rich.text import Text

from soulsgraph.cli.output import command_line, screen
from soulsgraph.results.tables import Table, text_table
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.machine import usable_memory, usable_processors
from soulsgraph_envs.games.doctor import Check, Checks, examine
from soulsgraph_envs.games.link import SIMULATOR, GameSettings, load_games, save_game
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.saves import GAMES, Save, copy_save, find_saves, restore_save, the_save
from soulsgraph_envs.games.setup import TOPIC, answered, program_of, questions, running_game, try_keys
from soulsgraph_envs.games.standin.launch import DEFAULT_STAND_IN, StandInOptions

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


def doctor(
    *, games: Path | None = None, setup: Path | None = None, fleet: Path | None = None, wait_s: float = 0.0
) -> None:
    """Report what this machine can do, with the remedy beside each failure; exit 1 if something fails.

    Args:
        games: TOML file of real-time games to examine, one after the other; the simulator if not given.
        setup: Games file to write for the game that runs here, or for that of --games: ask what cannot be read, press
            each bound key once and check what the game does.
        fleet: TOML file of a fleet whose head this machine is.
        wait_s: Seconds to wait for the PCs that the fleet's file names, to show which of their games could play here:
            it ends once every PC has answered. The code of every project that is known here is compared, too; of those
            that `project` names each PC must have the same.
    """
    if setup is None:
        examined = examine(load_games(games) if games else (GameSettings(driver=SIMULATOR),))
    else:
        examined = set_up(setup, games)
    checks = check_machine() + examined
    if fleet is not None:
        check_extra("doctor --fleet", "train")
        # Imported here: nothing else of this needs a fleet's libraries.
        from soulsgraph.cli.fleet import check_fleet, check_pcs

        checks += check_fleet(fleet) if not wait_s else check_pcs(fleet, wait_s)
    report_checks(checks, setup)


def report_checks(checks: Sequence[Check], written: Path | None = None) -> None:
    """Print checks, a table for each topic with remedies below what failed; exit 1 if one fails.

    Of a games file that was `written` it says how to go on.
    """
    passed, parts = all(check.passed for check in checks), list[RenderableType]()
    for topic, group in groupby(checks, lambda check: check.topic):
        rows = [
            (
                Text(check.status, _COLOURS[check.status]),
                check.name,
                "\n-> ".join(filter(None, (check.found, check.remedy))),
            )
            for check in group
        ]
        parts += [Table(topic, ("", "", ""), rows).to_rich(bare=True), ""]
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in _COLOURS)
    parts.append(f"{'everything needed is there' if passed else 'something needed is missing'}: {counts}")
    plain: dict[str, object] = {"passed": passed, "checks": [asdict(check) for check in checks]}
    if written is not None:
        plain["games"] = str(written)
        go_on = command_line("evaluate", "RUN", "--games", written, "--episodes", "1")
        parts.append(
            f"{written}: written, with dry_run: keys are pressed, nothing is written into the game; try: {go_on}"
        )
    screen.show(plain, *parts, passed=passed)


def check_machine() -> list[Check]:
    """Show the memory and the processors that this process may use."""
    checks, memory = Checks("This machine"), usable_memory()
    free, limit = (f"{size / 2**30:.1f} GiB" for size in (memory.available, memory.limit))
    checks.ok("memory", f"{free} free of {limit} that this process may use")
    checks.ok("processors", f"{usable_processors()} that this process may use")
    return checks.made


#: For a game that was just found, seconds.
_ATTACH_S = 5.0
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
    console, keys = Console(stderr=True, soft_wrap=True, highlight=False, markup=False), Checks(TOPIC)
    asked = questions(program_of(settings))
    console.print(f"{settings.map}: {len(asked)} questions that no reading answers.")
    try:
        answers = answered([(one, Confirm.ask(Text(one.text), console=console)) for one in asked])
        examined = examine((settings,))
        if all(check.passed for check in examined):
            console.input(f"{_PLACE}\nEnter begins: ")
            _press_keys(keys, settings, console)
        else:
            keys.skip("needs what failed above", "keys")
    except EOFError:
        console.print()
        found = "doctor --setup: expected an answer, found the end of what is typed"
        raise SoulsGraphError(found, "answer in a terminal") from None
    save_game(file, replace(settings, dry_run=True))
    return answers + keys.made + examined


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


def _press_keys(checks: Checks, settings: GameSettings, console: Console) -> None:
    remedy = "show the game's window, load a character, and try again"
    with checks.failing("keys", remedy), closing(make_link(settings)) as link:
        link.attach(_ATTACH_S)
        link.focus()
        for check in try_keys(link, settings):
            console.print(f"{check.status:4}  {check.name}: {check.found}")
            checks.made.append(check)


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
