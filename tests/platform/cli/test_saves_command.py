from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph_envs.games import saves


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(saves, "program_names", dict)


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["soulsgraph", "saves", *map(str, words)])
    main()


def test_a_save_is_copied_played_with_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "DarkSoulsIII"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "DS30000.sl2").write_text("mine")
    run(monkeypatch, "copy", "dark-souls-3", "--folder", folder, "--out", tmp_path / "saves", "--json")
    copied = Path(json.loads(capsys.readouterr().out)["folder"])
    (folder / "1" / "DS30000.sl2").write_text("the agent's")
    words = ("restore", "dark-souls-3", copied, "--folder", folder, "--out", tmp_path / "before")
    run(monkeypatch, *words)
    assert "put it back" not in capsys.readouterr().out
    assert (folder / "1" / "DS30000.sl2").read_text() == "mine"
    (before,) = (tmp_path / "before").iterdir()
    assert (before / "1" / "DS30000.sl2").read_text() == "the agent's"


def test_the_list_names_the_games_without_a_save(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "list")
    assert len([line for line in capsys.readouterr().out.splitlines() if "no save" in line]) == len(saves.GAMES)


def test_a_save_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, "copy", "elden-ring")
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: elden-ring: expected a save of Elden Ring, found none")
