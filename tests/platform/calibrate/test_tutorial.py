"""The page on fitting a game followed literally, against a stand-in with altered data: every block in its order."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fakes.clusters import Program
from fakes.keys import virtual_screen
from fakes.waiting import PATIENCE_S, undisturbed, until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_boss, load_scenario

PAGE = Path(__file__).parents[3] / "docs" / "fitting.md"
#: The screen of the page.
DISPLAY = ":52"
_BLOCK = re.compile(r'^```(?:sh|toml)(?: title="([\w.]+)")?\n(.*?)^```$', re.M | re.S)


def files_and_commands():
    """Yield the files of the page's steps as (name, text), and their commands, each under no name."""
    steps = PAGE.read_text(encoding="utf-8").partition("## Step by step")[2].partition("\n## ")[0]
    for name, text in _BLOCK.findall(steps):
        yield from [(name, text)] if name else (("", line) for line in text.splitlines())


def surroundings(display):
    """Return the environment in which the page's commands are run."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"DISPLAY": display, "PATH": path}


def run(line, folder, display):
    """Run a command of the page."""
    words = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(
        words, cwd=folder, env=surroundings(display), capture_output=True, text=True, timeout=PATIENCE_S
    )
    if done.returncode:
        raise GameError(line + done.stdout + done.stderr)


def standing_in(line, folder, display):
    """Start the page's stand-in on another screen, and return it once it is ready."""
    command = line.removesuffix(" &").replace(DISPLAY, display)
    game = Program("game", ["bash", "-euc", f"cd {folder}\nexec {command}"], surroundings(display), folder)
    until(lambda: not game.running or "ready" in game.logs(), "a game that is ready")
    assert game.running, game.logs()
    return game


@pytest.mark.docs
def test_the_data_of_another_game_are_found_by_what_the_page_says(tmp_path):
    steps = list(files_and_commands())
    files, (_, standin, *commands) = [step for step in steps if step[0]], [line for name, line in steps if not name]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with virtual_screen() as display:
        game = standing_in(standin, tmp_path, display)
        try:
            # A command that a busy machine disturbed goes on with the fights that are missing.
            for line in commands:
                undisturbed(partial(run, line, tmp_path, display))
        finally:
            game.kill()
    truth, found = load_boss(tmp_path / "other.toml"), load_boss(tmp_path / "mine.toml")
    assert found.motion.walk_m_s == pytest.approx(truth.motion.walk_m_s, rel=0.05)
    assert found.motion.turn_rad_s == pytest.approx(truth.motion.turn_rad_s, rel=0.05)
    assert load_scenario(tmp_path / "mine-scenario.toml").boss.endswith("mine.toml")
    assert (tmp_path / "wrong" / "report.md").is_file()
    assert json.loads((tmp_path / "played" / "evaluation.json").read_text())["episodes"] == 1
