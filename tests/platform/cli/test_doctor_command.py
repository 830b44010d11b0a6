"""`soulsgraph doctor`: what this machine can do, games and a fleet, and a game that is set up by answers and keys."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.setup import EFFECTS, questions
from soulsgraph_envs.games.standin.launch import StandInOptions


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]) -> Any:
    """Return a function that runs the doctor without a display; it returns the exit code and what was printed."""

    def run(*words: object, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return command("doctor", *words)

    return run


@pytest.mark.slow
def test_a_fleet_that_lacks_a_pc_is_exit_code_1(doctor, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'listen = "127.0.0.1:{free_port()}"\npcs = ["attic"]\n')
    code, out, _ = doctor("--fleet", fleet, "--json")
    told = json.loads(out)
    assert (code, told["passed"]) == (1, False)
    assert [check["name"] for check in told["checks"] if check["status"] == "fail"] == ["attic"]


@pytest.mark.slow
def test_a_setup_asks_presses_each_key_and_writes_a_games_file_that_writes_nothing(doctor, tmp_path: Path) -> None:
    found, written = tmp_path / "found.toml", tmp_path / "games.toml"
    asked = questions("DarkSoulsIII.exe")
    answers = "what?\nN\n" + "y\n" * (len(asked) - 1) + "\n"
    with virtual_screen() as display, StandInProcess(StandInOptions(display=display, at="bonfire", settings=found)):
        code, out, errors = doctor("--setup", written, "--games", found, "--json", typed=answers)
    told = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1, "one answer was no"
    assert [name for name, check in told.items() if check["status"] == "fail"] == [asked[0].name]
    assert told[asked[0].name]["remedy"] == asked[0].remedy
    pressed = [str(control.name).lower() for control in EFFECTS]
    assert [told[name]["status"] for name in pressed] == ["ok"] * len(pressed), errors
    (settings,) = load_games(written)
    assert settings.dry_run
    assert settings.map == "dark-souls-3-1.15.2"


def test_a_setup_without_all_answers_writes_nothing(doctor, tmp_path: Path) -> None:
    (tmp_path / "given.toml").write_text("[[games]]\npid = 1\n")
    code, _, errors = doctor("--setup", tmp_path / "games.toml", "--games", tmp_path / "given.toml", typed="y\n")
    assert code == 2
    assert "--setup" in errors.splitlines()[-1]
    assert not (tmp_path / "games.toml").exists()
