"""A user's folders, also where there is no home, no name, or somebody else's folder in the way."""

import getpass
import os
from pathlib import Path

import pytest

from soulsgraph_envs.core import compiling
from soulsgraph_envs.core.machine import (
    home_folder,
    is_writable,
    private_temporary_folder,
    stand_in_for_home,
    user_folder,
)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return an empty folder in the place of the system's for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_users_folders_are_where_the_standard_says(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert (user_folder("cache"), user_folder("state")) == (Path("/home/ada/.cache"), Path("/state"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert user_folder("state") == Path("/home/ada/.local/state")


@pytest.mark.parametrize("home", ["", "relative", "~"])
def test_a_home_that_is_no_absolute_path_is_none(monkeypatch, temporary, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert (home_folder(), user_folder("state")) == (None, None)
    assert user_folder("cache") == temporary / f"soulsgraph-home-{os.geteuid()}" / ".cache"


def test_others_libraries_find_a_private_folder_in_place_of_a_home(monkeypatch, temporary):
    monkeypatch.setenv("HOME", "")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    stand_in_for_home()
    assert Path.home().parent == temporary
    assert Path.home().stat().st_mode & 0o777 == 0o700
    assert home_folder() is None, "nothing that must last is kept there"
    assert getpass.getuser()


def test_a_temporary_folder_that_others_can_write_or_made_is_not_taken(temporary):
    folder = private_temporary_folder("some")
    assert folder is not None
    assert private_temporary_folder("some") == folder
    folder.chmod(0o777)
    assert private_temporary_folder("some") is None
    folder.rmdir()
    folder.symlink_to(temporary)
    assert private_temporary_folder("some") is None


def test_compiled_code_lies_where_it_can_be_written_and_a_user_hears_where_it_is_not_kept(monkeypatch, temporary):
    allowed = [temporary / "chosen"]
    monkeypatch.setattr(compiling, "is_writable", lambda folder: any(folder.is_relative_to(one) for one in allowed))
    monkeypatch.setattr("numba.config.CACHE_DIR", str(temporary / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(temporary / "users"))
    found = []
    for place in ("chosen", "users", "none"):
        allowed[:] = [temporary / place] if place != "none" else []
        compiling.cache_folder.cache_clear()
        found.append((compiling.cache_folder(), compiling.cache_remark()))
    compiling.cache_folder.cache_clear()
    kind = compiling.processor_kind()
    assert found[0] == (temporary / "chosen" / kind, "")
    assert found[1] == (temporary / "users" / "soulsgraph" / kind, "")
    assert found[2][0] is None
    assert found[2][1]


def test_a_function_without_a_place_for_its_code_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)
    assert compiling.cached()(lambda number: number + 1)(2) == 3


def test_a_file_in_the_way_of_a_folder_is_not_writable(tmp_path):
    (tmp_path / "file").touch()
    assert not is_writable(tmp_path / "file" / "folder")
    assert is_writable(tmp_path / "new" / "folder")
