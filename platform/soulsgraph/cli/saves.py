"""`soulsgraph saves`: where a game's saves lie, copies of them, and putting one back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions, one_action
from soulsgraph.cli.remedies import command_line
from soulsgraph.results.tables import text_table
from soulsgraph_envs.games.saves import GAMES, Save, copy_save, find_saves, restore_save, the_save

Game = Annotated[Positional[str], arg(metavar="GAME")]
#: Where copies lie unless told otherwise.
_COPIES = Path("saves")


def list_saves(output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """List the saves of the known games that this user has, and where each is looked for."""
    saves = [save for game in GAMES for save in find_saves(game)]
    rows = [(save.game, str(save.folder), ", ".join(path.name for path in save.files)) for save in saves]
    plain = [{"game": game, "folder": folder, "files": files.split(", ")} for game, folder, files in rows]
    missing = [game for game in GAMES if game not in {save.game for save in saves}]
    lines = [f"{game}: no save where Windows and Steam's Proton put it" for game in missing]
    output.show(plain, *([text_table("", ("game", "folder", "saves"), rows)] if rows else []), *lines)


def copy(game: Game, output: OutputOptions = DEFAULT_OUTPUT, folder: Path | None = None, out: Path = _COPIES) -> None:
    """Copy a game's whole folder of saves, settings included, into a new folder; the game must not run.

    Args:
        game: Name of the game, as `list` has it.
        folder: Folder of the saves, where they lie elsewhere or there are several.
        out: Folder in which the copy is made.
    """
    copied = copy_save(the_save(game, folder), out)
    back = command_line("saves", "restore", game, copied.folder)
    output.show(_plain(copied), f"copied to {copied.folder}; put it back with: {back}")


def restore(
    game: Game,
    copied: Annotated[Positional[Path], arg(metavar="COPY")],
    output: OutputOptions = DEFAULT_OUTPUT,
    folder: Path | None = None,
    out: Path = _COPIES,
) -> None:
    """Put a copy back in the place of a game's saves, which are copied before; the game must not run.

    Args:
        game: Name of the game, as `list` has it.
        copied: Folder that `copy` made.
        folder: Folder of the saves, where they lie elsewhere or there are several.
        out: Folder in which what is there now is copied before.
    """
    save = the_save(game, folder)
    before = restore_save(Save(game, copied), save, out)
    plain = {"game": game, "folder": str(save.folder), "before": str(before.folder)}
    output.show(plain, f"{save.folder}: as in {copied} again; what was there is in {before.folder}")


def _plain(save: Save) -> dict[str, object]:
    files = [str(path.relative_to(save.folder)) for path in save.files]
    return {"game": save.game, "folder": str(save.folder), "files": files}


ACTIONS = {"list": list_saves, "copy": copy, "restore": restore}


def saves(action: one_action("saves", ACTIONS)) -> None:  # type: ignore[valid-type]
    """Find the saves of a game on this PC, copy them before an agent plays, and put a copy back afterwards."""
