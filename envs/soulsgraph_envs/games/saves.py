"""A game's saves: where they lie, and whole copies of them, made and put back while the game does not run.

A save is a folder: of settings, and of a folder for each Steam account. It is copied and put back as one.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import whole_folder, writing

#: Steam's own folders on Linux, a Flatpak's last; more libraries are named in a file of theirs.
_STEAM = (".steam/steam", ".local/share/Steam", ".var/app/com.valvesoftware.Steam/.local/share/Steam")
_LIBRARIES, _LIBRARY = "steamapps/libraryfolders.vdf", re.compile(r'"path"\s+"((?:[^"\\]|\\.)*)"')
_ROAMING = "pfx/drive_c/users/steamuser/AppData/Roaming"
_STAMP = "%Y%m%d-%H%M%S"


@dataclass(frozen=True)
class SavedGame:
    """A game: its title, the folder of its saves, its number in Steam, its program, and which files are saves."""

    title: str
    folder: str
    steam_app: int
    process: str
    files: tuple[str, ...]


_FILE = Where(Path(__file__).parents[1] / "data" / "saves.toml")
GAMES: Mapping[str, SavedGame] = validate(dict[str, SavedGame], read_file(_FILE), _FILE)


class SaveError(SoulsGraphError):
    """A save that is not there, that is in use, or that is no copy of one."""


@dataclass(frozen=True)
class Save:
    """A folder of a game's saves, with the files in it that are saves, newest first."""

    game: str
    folder: Path

    @property
    def files(self) -> list[Path]:
        """The saves in it, newest first."""
        paths = [path for pattern in GAMES[self.game].files for path in self.folder.rglob(pattern)]
        return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def find_saves(game: str, home: Path | None = None) -> list[Save]:
    """Return the folders of this user's saves of a game; several where it was played in several ways.

    Raises:
        UnknownNameError: if no game has that name.
    """
    _check_known(game)
    folders = dict.fromkeys(path.resolve() for path in _folders(GAMES[game], home or Path.home()) if path.is_dir())
    return [save for save in (Save(game, folder) for folder in folders) if save.files]


def the_save(game: str, folder: Path | None = None) -> Save:
    """Return the save of a game in a folder, or the only one that this user has.

    Raises:
        UnknownNameError: if no game has that name.
        SaveError: if there is none, or there are several to choose from.
    """
    _check_known(game)
    saves = find_saves(game) if folder is None else [save for save in [Save(game, folder)] if save.files]
    if len(saves) == 1:
        return saves[0]
    title = GAMES[game].title
    if not saves:
        found = f"none in {folder}" if folder else "none where Windows and Steam's Proton put them"
        remedy = "begin a character in the game first, or name the folder with the saves by `folder`"
        raise SaveError(f"{game}: expected a save of {title}, found {found}", remedy)
    listed = ", ".join(str(save.folder) for save in saves)
    raise SaveError(f"{game}: expected one save of {title}, found {len(saves)}: {listed}", "choose one by `folder`")


def program_names() -> dict[int, str]:
    """Return the names of the programs that run here, by process id; those that the system names."""
    # Imported here: only a save's copy asks for them.
    import psutil

    names = dict[int, str]()
    for process in psutil.process_iter():
        # One that just ended has none, and Wine names none at all.
        with suppress(psutil.Error, OSError):
            names[process.pid] = process.name()
    return names


def copy_save(save: Save, out: Path, now: datetime | None = None) -> Save:
    """Copy a save into a new folder of `out`, named by game and time, whole or not at all.

    Raises:
        SaveError: while the game runs: it might write meanwhile; for a folder within the save's own.
        WriteError: if it cannot be written.
    """
    if out.resolve().is_relative_to(save.folder.resolve()):
        raise SaveError(f"{out}: expected a folder outside the save's own, found it in {save.folder}", "name another")
    _check_closed(save.game)
    target = out / f"{save.game}-{(now or datetime.now()).strftime(_STAMP)}"
    with whole_folder(target) as folder:
        _copy(save.folder, folder)
    return Save(save.game, target)


def restore_save(copy: Save, save: Save, out: Path, now: datetime | None = None) -> Save:
    """Put a copy back in a save's place; return the copy of what was there, made in `out` before.

    Raises:
        SaveError: while the game runs, or for a copy without any save in it.
        WriteError: if it cannot be written; the save is as it was then.
    """
    if not copy.files:
        patterns = " or ".join(GAMES[copy.game].files)
        raise SaveError(f"{copy.folder}: expected a copied save with {patterns} in it, found none", "name another one")
    before = copy_save(save, out, now)
    with whole_folder(save.folder, replace=True) as folder:
        _copy(copy.folder, folder)
    return before


def _check_closed(game: str) -> None:
    """Refuse a game that runs; raises SaveError, naming its process."""
    # Linux cuts names after 15 characters.
    wanted = GAMES[game].process.lower()
    for pid, name in program_names().items():
        if name.lower() in (wanted, wanted[:15]):
            raise SaveError(
                f"{game}: expected that it does not run while its save is copied, found process {pid}",
                "quit it to the desktop and try again",
            )


def _check_known(game: str) -> None:
    if game not in GAMES:
        raise UnknownNameError("game", game, GAMES)


def _copy(source: Path, folder: Path) -> None:
    with writing(folder):
        shutil.copytree(source, folder, dirs_exist_ok=True)


def _folders(game: SavedGame, home: Path) -> Iterator[Path]:
    """Return where a game's saves may lie: Windows' folder, and the Proton prefixes of every Steam library."""
    if sys.platform == "win32":
        yield Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming") / game.folder
        return
    for steam in _STEAM:
        for library in (home / steam, *_libraries(home / steam)):
            yield library / "steamapps" / "compatdata" / str(game.steam_app) / _ROAMING / game.folder


def _libraries(steam: Path) -> list[Path]:
    """Return the folders that Steam's file of libraries names, none where it cannot be read."""
    try:
        text = (steam / _LIBRARIES).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [Path(re.sub(r"\\(.)", r"\1", path)) for path in _LIBRARY.findall(text)]
