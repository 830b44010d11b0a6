"""The page of one PC followed literally, against the stand-in: every block that can be run here, in order.

Trainings are made small, fights few; a save is copied by its own test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.setup import questions
from soulsgraph_envs.games.standin.launch import StandInOptions, StandInProcess

PAGE = Path(__file__).parents[1] / "docs" / "one_pc.md"
_STEP = re.compile(r"^## (\d)\. .+$", re.M)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
#: What makes a command of the page small enough.
_SMALL = {
    r"--episodes 10\b": "--episodes 1",
    r"--preset best$": "--preset best --scale 0.01 --episodes 20",
    r"--budget 5000\b": "--budget 120",
}


def commands() -> Iterator[tuple[int, str]]:
    """Yield every command of the numbered steps with its step."""
    _, *parts = _STEP.split(PAGE.read_text(encoding="utf-8"))
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        for block in _COMMANDS.findall(text.partition("\n## ")[0]):
            yield from ((int(number), line) for line in block.splitlines() if line.startswith("soulsgraph "))


def run(line: str, folder: Path, display: str, typed: str = "") -> str:
    """Run a command of the page, made small, and return what it printed."""
    for long, short in _SMALL.items():
        line = re.sub(long, short, line)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"DISPLAY": display, "PATH": path}
    words = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, input=typed, timeout=PATIENCE_S
    )
    assert done.returncode == 0, line + done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_page_has_what_is_followed() -> None:
    assert [(step, line.split()[1]) for step, line in commands()] == [
        (3, "saves"),
        (3, "saves"),
        (4, "doctor"),
        (5, "evaluate"),
        (5, "evaluate"),
        (6, "curriculum"),
        (6, "evaluate"),
        (7, "adapt"),
        (7, "evaluate"),
        (8, "saves"),
    ]


@pytest.mark.slow
def test_one_pc_plays_and_trains_by_what_the_page_says(tmp_path: Path) -> None:
    steps = {number: [line for step, line in commands() if step == number] for number in range(1, 9)}
    found, games = tmp_path / "found.toml", tmp_path / "games.toml"
    with virtual_screen() as display:
        with StandInProcess(StandInOptions(display=display, at="bonfire", settings=found)):
            typed = "y\n" * len(questions("Dark Souls III")) + "\n"
            # Other tests' games may run beside this one: it is named by its process.
            setup = run(f"{steps[4][0]} --games {found}", tmp_path, display, typed)
            assert re.search(r"^ok +heal_attack|^ok +use_item +r: animation Estus", setup, re.M), setup
        with StandInProcess(StandInOptions(display=display, settings=found)) as game:
            # Begun anew it is another process, in the midst of the fight.
            games.write_text(re.sub(r"^pid = .*$", f"pid = {game.pid}", games.read_text(), flags=re.M))
            dry, *rest = [line for number in (5, 6, 7) for line in steps[number]]
            assert "dry run: " in run(dry, tmp_path, display)
            games.write_text("".join(line for line in games.read_text().splitlines(True) if "dry_run" not in line))
            for line in rest:
                run(line, tmp_path, display)
    assert not load_games(games)[0].dry_run
    assert json.loads((tmp_path / "played" / "evaluation.json").read_text())["episodes"] == 1
    cards = sorted((tmp_path / "runs" / "mine" / "library" / "heal_attack").iterdir())
    assert [path.name for path in cards] == ["v1", "v2"]
