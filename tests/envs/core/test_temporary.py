"""Temporary folders: private, removed at the end, or by the next process if theirs was killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from soulsgraph_envs.core.files import temporary_folder, write_text

_KILLED = """
import os, signal, sys
from pathlib import Path
from soulsgraph_envs.core.files import temporary_folder
with temporary_folder("some-", Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_is_its_owners_alone_and_goes_at_the_end(tmp_path: Path) -> None:
    with temporary_folder("some-", tmp_path) as folder:
        assert (folder.parent, stat.S_IMODE(folder.stat().st_mode)) == (tmp_path, 0o700)
        assert folder.name.startswith("some-")
        assert str(os.getpid()) not in folder.name
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_a_killed_process_leaves_its_folder_to_the_next_one_which_spares_those_in_use(tmp_path: Path) -> None:
    with temporary_folder("some-", tmp_path) as ours:
        subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], timeout=600)
        (killed,) = {*tmp_path.iterdir()} - {ours}
        assert (killed / "file").exists()
        with temporary_folder("other-", tmp_path):
            assert killed.exists(), "a folder of another kind is none of its business"
        with temporary_folder("some-", tmp_path) as next_one:
            assert {*tmp_path.iterdir()} == {ours, next_one}
    assert not list(tmp_path.iterdir())


def test_what_only_looks_like_a_folder_of_ours_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "some-folder").mkdir()
    (tmp_path / "some-file").touch()
    (tmp_path / "some-link").symlink_to(elsewhere)
    with pytest.raises(KeyError), temporary_folder("some-", tmp_path):
        raise KeyError
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "some-file", "some-folder", "some-link"}


def test_many_writers_of_one_folder_do_not_take_each_others_work_for_what_was_left(tmp_path: Path) -> None:
    def written(number: int) -> str:
        for value in range(200):
            write_text(tmp_path / f"{number}.json", str(value))
        return (tmp_path / f"{number}.json").read_text()

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(written, range(8))] == ["199"] * 8
    assert len([*tmp_path.iterdir()]) == 8
