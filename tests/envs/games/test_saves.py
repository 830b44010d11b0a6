from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.games import saves
from soulsgraph_envs.games.saves import (
    GAMES,
    Save,
    SaveError,
    copy_save,
    find_saves,
    program_names,
    restore_save,
    the_save,
)

NOW, LATER = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 6)
ACCOUNT = "0110000100000001"


def make_save(folder: Path, text: str = "saved", account: str = ACCOUNT) -> Save:
    (folder / account).mkdir(parents=True)
    (folder / account / "DS30000.sl2").write_text(text)
    (folder / "GraphicsConfig.xml").write_text("<config/>")
    return Save("dark-souls-3", folder)


def prefix(library: Path, game: str = "dark-souls-3") -> Path:
    saved = GAMES[game]
    roaming = "pfx/drive_c/users/steamuser/AppData/Roaming"
    return library / "steamapps/compatdata" / str(saved.steam_app) / roaming / saved.folder


@pytest.mark.skipif(sys.platform == "win32", reason="Proton is Linux's")
@pytest.mark.parametrize("steam", [".steam/steam", ".var/app/com.valvesoftware.Steam/.local/share/Steam"])
def test_a_save_is_found_in_each_steam_library_once(tmp_path: Path, steam: str) -> None:
    home, library = tmp_path / "home", tmp_path / 'a "second" disk'
    make_save(prefix(home / steam))
    make_save(prefix(library))
    listed = str(library).replace("\\", "\\\\").replace('"', '\\"')
    file = home / steam / "steamapps" / "libraryfolders.vdf"
    file.write_text(
        f'"libraryfolders"\n{{\n"0"\n{{\n"path"\t\t"{home / steam}"\n}}\n"1"\n{{\n"path"\t"{listed}"\n}}\n}}\n'
    )
    (home / ".local/share").mkdir(parents=True, exist_ok=True)
    if steam == ".steam/steam":
        # As Steam has it: the one is a link to the other.
        (home / ".local/share/Steam").symlink_to(home / steam)
    found = find_saves("dark-souls-3", home)
    assert [save.folder for save in found] == [prefix(home / steam).resolve(), prefix(library).resolve()]
    assert found[0].files == [prefix(home / steam).resolve() / ACCOUNT / "DS30000.sl2"]
    assert find_saves("elden-ring", home) == []


@pytest.mark.parametrize("below", ["", "copies", "1/copies"])
def test_a_copy_does_not_lie_within_what_is_copied(tmp_path: Path, below: str) -> None:
    save = make_save(tmp_path / "DarkSoulsIII")
    before = sorted(save.folder.rglob("*"))
    with pytest.raises(SaveError, match="outside"):
        copy_save(save, save.folder / below, NOW)
    assert sorted(save.folder.rglob("*")) == before


def test_a_copy_is_the_whole_folder_and_comes_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The game of another test may run.
    monkeypatch.setattr(saves, "program_names", dict)
    save = make_save(tmp_path / "DarkSoulsIII")
    copied = copy_save(save, tmp_path / "saves", NOW)
    assert copied.folder == tmp_path / "saves" / "dark-souls-3-20260102-030405"
    (save.folder / ACCOUNT / "DS30000.sl2").write_text("an agent's")
    (save.folder / "new.txt").write_text("")
    before = restore_save(copied, save, tmp_path / "saves", LATER)
    assert (save.folder / ACCOUNT / "DS30000.sl2").read_text() == "saved"
    assert (save.folder / "GraphicsConfig.xml").read_text() == "<config/>"
    assert not (save.folder / "new.txt").exists()
    assert (before.folder / ACCOUNT / "DS30000.sl2").read_text() == "an agent's"


def test_nothing_is_put_back_from_a_folder_without_a_save(tmp_path: Path) -> None:
    save = make_save(tmp_path / "DarkSoulsIII")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SaveError, match="empty"):
        restore_save(Save(save.game, tmp_path / "empty"), save, tmp_path / "saves", NOW)
    assert save.files
    assert not (tmp_path / "saves").exists()


@pytest.mark.parametrize("made", [0, 2])
def test_one_save_is_expected_and_the_remedy_named(tmp_path: Path, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(made):
        make_save(prefix(tmp_path / (".steam/steam", ".local/share/Steam")[number]))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("APPDATA", str(tmp_path / "none"))
    with pytest.raises(SaveError, match="folder"):
        the_save("dark-souls-3")
    for find in (find_saves, the_save):
        with pytest.raises(UnknownNameError, match="bloodborne"):
            find("bloodborne")


@pytest.mark.parametrize("name", ["DarkSoulsIII.exe", "darksoulsiii.exe", "DarkSoulsIII.ex"])
def test_a_game_that_runs_is_not_copied(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save = make_save(tmp_path / "DarkSoulsIII")
    monkeypatch.setattr(saves, "program_names", lambda: {1: "init", 42: name})
    with pytest.raises(SaveError, match="42"):
        copy_save(save, tmp_path / "saves", NOW)
    assert not (tmp_path / "saves").exists()


def test_a_program_that_the_system_does_not_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unnamed:
        pid = 7

        def name(self) -> str:
            raise OSError(22, "originated from NtQuerySystemInformation")

    monkeypatch.setattr(psutil, "process_iter", lambda: [Unnamed()])
    assert program_names() == {}
    monkeypatch.undo()
    assert program_names()[os.getpid()]
