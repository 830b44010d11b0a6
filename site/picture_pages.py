"""Make the pictures of pages, of own skills and of a person's window: `make pictures` runs it.

It needs Chromium and pygame, and trains three agents first: two for a report, and one with a skill of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
#: An agent of the zoo, in a scenario in which it loses now and then, and a seed with which it does.
AGENT, SCENARIO, SEED = "iudex-phase1-best-0", "iudex-phase2", 5
COLOURS = 256


def soulsgraph(*words: str) -> None:
    """Run a command of the package."""
    call = "from soulsgraph.cli import main; main()"
    subprocess.run([sys.executable, "-P", "-c", call, *words], check=True)


def seen(page: Path, picture: Path, height: int, fragment: str = "") -> None:
    """Write what Chromium shows of a page."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=5000"]
    options += ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    address = page.resolve().as_uri() + fragment
    shot = [f"--window-size=1400,{height}", f"--screenshot={picture}", address]
    subprocess.run([program, *options, *shot], check=True, stderr=subprocess.DEVNULL)
    smaller(picture)


def smaller(picture: Path) -> None:
    """Write a picture again in few colours."""
    with Image.open(picture) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)


def of_play(picture: Path) -> None:
    """Write the window of a person who rolls away from a blow, drawn without a display."""
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    import numpy as np
    import pygame

    from soulsgraph.watch.playing import PlayWindow
    from soulsgraph_envs.core.scenario import load_scenario
    from soulsgraph_envs.core.state import Control
    from soulsgraph_envs.games.keys import load_bindings
    from soulsgraph_envs.simulator.driver import Simulator

    scenario, game = load_scenario("iudex-phase1"), Simulator(1)
    game.reset(np.zeros(1, np.int64), scenario, np.array([3], np.uint64))
    window = PlayWindow(scenario, load_bindings("play"))
    controls = Control.LOCK_ON | Control.FORWARD
    # Ahead until a blow is about to land, then a roll.
    while game.scene().until_hit_s > 0.2:
        game.step(np.array([controls], np.uint32))
        controls = Control.FORWARD
    controls |= Control.ROLL
    for _ in range(2):
        game.step(np.array([controls], np.uint32))
    window.show(game.scene(), controls)
    pixels = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    window.close()
    Image.fromarray(pixels).save(picture)
    smaller(picture)


def of_own_skill(folder: Path, picture: Path) -> None:
    """Write a riposte of the project that `init` writes, after training its six skills."""
    project, run = folder / "duel", folder / "duel-forked"
    soulsgraph("init", str(project))
    scenario = project / "duel" / "data" / "scenarios" / "duel.toml"
    planned = ["--graph", "duel/forked", "--scenario", str(scenario), "--preset", "best"]
    soulsgraph("curriculum", "--run", str(run), "--project", str(project), *planned)
    shown = ["--seed", "1000003", "--seconds", "4.5", "--file", str(picture)]
    soulsgraph("watch", str(run), "--project", str(project), *shown)


def main() -> None:
    """Make the pictures."""
    of_play(DOCS / "play.png")
    with TemporaryDirectory() as name:
        folder = Path(name)
        of_own_skill(folder, DOCS / "own_skills.png")
        fights = ["--scenario", SCENARIO, "--seed", str(SEED), "--episodes", "8"]
        soulsgraph("data", "record", AGENT, "--out", str(folder), *fights)
        from soulsgraph.recordings.files import read_header, recording_files

        lost = next(file for file in recording_files(folder) if read_header(file).result.outcome == "died")
        soulsgraph("watch", str(lost), "--file", str(folder / "fight.html"))
        seen(folder / "fight.html", DOCS / "replay.png", 1500, f"#{read_header(lost).result.ticks - 4}")
        for preset in ("best", "fast"):
            soulsgraph("curriculum", "--run", str(folder / preset), "--preset", preset)
        runs = [str(folder / "best"), "--beside", str(folder / "fast")]
        soulsgraph("report", *runs, "--out", str(folder / "report.html"))
        seen(folder / "report.html", DOCS / "report.png", 1900)


if __name__ == "__main__":
    main()
