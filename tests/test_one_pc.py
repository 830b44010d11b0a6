"""The page of one PC followed literally: every block that can be run here, in order; trainings are small, fights few.

On this system against the stand-in, where a save is copied by its own test; by Windows' Python under Wine against a
Windows program that hears keys and has the game's memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fakes.keys import virtual_screen
from fakes.programs import missing_for_wine
from fakes.stand_in import StandInProcess
from fakes.waiting import PATIENCE_S
from fakes.windows import WindowsPC, windows_pc
from fakes.wine_game import running_wine_game, world_in
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.games.setup import EFFECTS, questions
from soulsgraph_envs.games.standin.launch import StandInOptions

PAGE = Path(__file__).parents[1] / "docs" / "one_pc.md"
_STEP = re.compile(r"^## (\d)\. .+$", re.M)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
PRESSED = [str(control.name).lower() for control in EFFECTS]
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


def small(line: str) -> str:
    """Return a command of the page, made small enough."""
    for long, short in _SMALL.items():
        line = re.sub(long, short, line)
    return line


def run(line: str, folder: Path, display: str, typed: str = "") -> str:
    """Run a command of the page, made small, and return what it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"DISPLAY": display, "PATH": path}
    words = ["bash", "-euo", "pipefail", "-c", small(line)]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, input=typed, timeout=PATIENCE_S
    )
    assert done.returncode == 0, line + done.stdout + done.stderr
    return done.stdout + done.stderr


def steps_of_the_page() -> dict[int, list[str]]:
    """Return the commands of each step."""
    return {number: [line for step, line in commands() if step == number] for number in range(1, 9)}


def play_in_earnest(games: Path) -> None:
    """Delete the line that keeps the driver from writing, as the page says."""
    games.write_text("".join(line for line in games.read_text().splitlines(True) if "dry_run" not in line))


@pytest.mark.docs
def test_one_pc_plays_and_trains_by_what_the_page_says(tmp_path: Path) -> None:
    steps = steps_of_the_page()
    found, games = tmp_path / "found.toml", tmp_path / "games.toml"
    with virtual_screen() as display:
        with StandInProcess(StandInOptions(display=display, at="bonfire", settings=found)):
            typed = "y\n" * len(questions("DarkSoulsIII.exe")) + "\n"
            # Other tests' games may run beside this one: it is named by its process.
            setup = run(f"{steps[4][0]} --games {found}", tmp_path, display, typed)
            assert re.search(r"^ok +heal_attack|^ok +use_item +r: animation Estus", setup, re.M), setup
        with StandInProcess(StandInOptions(display=display, settings=found)) as game:
            # Begun anew it is another process, in the midst of the fight.
            games.write_text(re.sub(r"^pid = .*$", f"pid = {game.pid}", games.read_text(), flags=re.M))
            dry, *rest = [line for number in (5, 6, 7) for line in steps[number]]
            assert "dry run: " in run(dry, tmp_path, display)
            play_in_earnest(games)
            for line in rest:
                run(line, tmp_path, display)
    assert not load_games(games)[0].dry_run
    assert json.loads((tmp_path / "played" / "evaluation.json").read_text())["episodes"] == 1
    cards = sorted((tmp_path / "runs" / "mine" / "library" / "heal_attack").iterdir())
    assert [path.name for path in cards] == ["v1", "v2"]


MISSING = missing_for_wine()
#: A whole command, everything compiled anew, on a busy machine.
WITHIN_S = 3600.0


def run_there(pc: WindowsPC, line: str, typed: str = "") -> str:
    """Run a command of the page, made small, by Windows' Python in the PC's folder; return what it printed."""
    program = pc.start(pc.program, *small(line).split()[1:])
    assert program.process.stdin is not None
    program.process.stdin.write(typed.encode())
    code, text = program.wait(WITHIN_S)
    assert code == 0, line + text
    return text


@pytest.mark.release
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_windows_python_follows_the_page_in_a_windows_game(tmp_path: Path) -> None:
    """The save is copied, and put back by the command that the copy names."""
    steps, folder = steps_of_the_page(), tmp_path / "game"
    folder.mkdir()
    with windows_pc(tmp_path, ["train", "game", "watch"]) as pc:
        done = partial(run_there, pc)
        (save,) = (one / "DarkSoulsIII" / "1" / "DS30000.sl2" for one in pc.folder.parent.glob("*/AppData/Roaming"))
        save.parent.mkdir(parents=True)
        save.write_text("mine")
        listed, copied = map(done, steps[3])
        assert "DS30000.sl2" in listed
        save.write_text("the agent's")
        with running_wine_game(folder, pc.environment) as game:
            with world_in(game, at_bonfire=True):
                setup = done(steps[4][0], "y\n" * len(questions("DarkSoulsIII.exe", "win32")) + "\n")
            silent = [name for name in PRESSED if not re.search(rf"^ok +{name} +\S+: ", setup, re.M)]
            assert not silent, setup
            assert load_games(pc.folder / "games.toml")[0].dry_run
            with world_in(game, at_bonfire=False):
                dry, *rest = [line for number in (5, 6, 7) for line in steps[number]]
                assert "dry run: " in done(dry)
                play_in_earnest(pc.folder / "games.toml")
                for line in rest:
                    done(line)
        (back,) = re.findall(r"soulsgraph game saves restore dark-souls-3 \S+", copied)
        assert back.startswith(steps[8][0].removesuffix("COPY"))
        done(back)
        assert save.read_text() == "mine"
        assert json.loads((pc.folder / "played" / "evaluation.json").read_text())["episodes"] == 1
        cards = sorted((pc.folder / "runs" / "mine" / "library" / "heal_attack").iterdir())
        assert [path.name for path in cards] == ["v1", "v2"]
