from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S
from soulsgraph.cli.doctor import check_machine, check_training, check_user, show
from soulsgraph_envs.core.machine import Memory
from soulsgraph_envs.games.doctor import Check
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.setup import EFFECTS, questions
from soulsgraph_envs.games.standin.launch import StandInOptions, StandInProcess

PAGE = [
    Check("The game", "window", "ok", "[bold]not markup[/bold]"),
    Check("The game", "layout", "warn", "fr", "choose English"),
    Check("Keys", "device", "fail", "none", "plug one in"),
]


def doctor(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("soulsgraph")), "doctor", *arguments]
    screenless = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    return subprocess.run(command, capture_output=True, text=True, env=screenless, timeout=PATIENCE_S, input=typed)


def test_training_needs_the_release_of_ray_it_was_built_on() -> None:
    checks = {check.name: check for check in check_training()}
    assert list(checks) == ["ray", "torch"]
    assert checks["ray"].status == "ok"
    assert checks["torch"].status == "ok"


def test_the_page_shows_each_remedy_below_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    show(PAGE, Console(width=100))
    shown = capsys.readouterr().out
    assert "[bold]not markup[/bold]" in shown
    assert shown.index("The game") < shown.index("choose English") < shown.index("Keys") < shown.index("plug one in")
    assert "something needed is missing: 1 ok, 1 warn, 1 fail, 0 skip" in shown


@pytest.mark.slow
def test_a_machine_that_can_simulate_exits_0() -> None:
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "iudex-phase1: ready" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["memory", "siphon"])
def test_a_machine_without_a_game_exits_1_with_a_remedy_for_every_failure(driver: str) -> None:
    done = doctor("--driver", driver, "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert not told["passed"]
    failed = [check for check in told["checks"] if check["status"] == "fail"]
    assert failed
    assert all(check["remedy"] for check in failed)


@pytest.mark.slow
def test_a_games_file_is_examined_table_by_table(tmp_path: Path) -> None:
    games = tmp_path / "games.toml"
    games.write_text('[[games]]\nmap = "dark-souls-3-1.15.2"\n[[games]]\nmap = "elden-ring-1.16.1"\n')
    done = doctor("--games", str(games), "--json")
    topics = {check["topic"] for check in json.loads(done.stdout)["checks"]}
    assert {"Game 1: The game, by dark-souls-3-1.15.2", "Game 2: The game, by elden-ring-1.16.1"} <= topics


def test_a_games_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = doctor("--games", str(tmp_path / "none.toml"))
    assert done.returncode == 2
    assert "none.toml" in done.stderr


def test_what_a_container_keeps_from_this_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr("soulsgraph.cli.doctor.usable_processors", lambda: 2)
    monkeypatch.setattr("soulsgraph.cli.doctor.usable_memory", lambda: Memory(600 << 20, 300 << 20))
    memory, processors = check_machine()
    assert memory.found.startswith("0.3 GiB free of 0.6 GiB that this process may use, of ")
    assert processors.found == "2 that this process may use, of 64 in the machine"
    monkeypatch.setattr("soulsgraph.cli.doctor.usable_processors", lambda: 64)
    monkeypatch.setattr("soulsgraph.cli.doctor.usable_memory", lambda: Memory(1 << 60, 1 << 40))
    assert not any("in the machine" in check.found for check in check_machine())


def test_a_user_without_a_place_for_what_lasts_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [check.status for check in check_user()] == ["ok", "ok"]
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr("soulsgraph_envs.core.compiling.cache_folder", lambda: None)
    home, code = check_user()
    assert (home.status, home.found) == ("warn", "none")
    assert "set HOME" in home.remedy
    assert (code.status, code.remedy.partition(" to ")[0]) == ("warn", "set NUMBA_CACHE_DIR")
    assert "every process compiles it anew" in code.found


@pytest.mark.slow
def test_a_setup_asks_presses_each_key_and_writes_a_games_file_that_writes_nothing(tmp_path: Path) -> None:
    found, written = tmp_path / "found.toml", tmp_path / "games.toml"
    asked = questions("Dark Souls III")
    answers = "what?\nNO\n" + "y\n" * (len(asked) - 1) + "\n"
    with virtual_screen() as display, StandInProcess(StandInOptions(display=display, at="bonfire", settings=found)):
        done = doctor("--setup", str(written), "--games", str(found), "--json", typed=answers)
    told = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1, "one answer was no"
    assert [name for name, check in told.items() if check["status"] == "fail"] == [asked[0].name]
    assert told[asked[0].name]["remedy"] == asked[0].remedy
    pressed = [str(control.name).lower() for control in EFFECTS]
    assert [told[name]["status"] for name in pressed] == ["ok"] * len(pressed), done.stderr
    (settings,) = load_games(written)
    assert settings.dry_run
    assert settings.map == "dark-souls-3-1.15.2"
    assert all(one.text in done.stderr for one in asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("games", "typed", "expected"),
    [
        ("", "", "expected a game that runs, one of"),
        ('[[games]]\ndriver = "simulator"\n', "", "expected one game that runs, found the simulator"),
        ("[[games]]\n[[games]]\n", "", "expected one game that runs, found 2 games"),
        ("[[games]]\npid = 1\n", "y\n", "expected an answer, found the end of what is typed"),
    ],
)
def test_a_setup_that_cannot_begin_is_one_line_and_writes_nothing(
    tmp_path: Path, games: str, typed: str, expected: str
) -> None:
    (tmp_path / "given.toml").write_text(games)
    given = ("--games", str(tmp_path / "given.toml")) if games else ()
    done = doctor("--setup", str(tmp_path / "games.toml"), *given, typed=typed)
    # Another test's stand-in may run meanwhile: it is then the game that is found.
    if not games and "questions that no reading answers" in done.stderr:
        expected = "expected an answer"
    assert done.returncode == 2
    assert expected in done.stderr.splitlines()[-1]
    assert not (tmp_path / "games.toml").exists()
