"""`soulsgraph doctor --setup`: ask, examine, press each key, and write the games file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.games.doctor import Check, Checks, examine, map_of
from soulsgraph_envs.games.link import SIMULATOR, GameSettings, load_games, save_game
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.setup import TOPIC, answered, questions, running_game, try_keys

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
    address_map = map_of(settings)
    asked = questions(address_map.game if address_map else "")
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
