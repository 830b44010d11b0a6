"""Record one fight of a run's trained skills as a moving picture.

python examples/record_fight.py runs/curriculum --out fight.gif
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from soulsgraph.evaluate import Setting, evaluation_seeds, make_agent
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.drivers.opening import make_game

_SIZE = (270, 480)
_TICK_MS = 100


def main() -> None:
    """Play one episode of an evaluation and keep a picture of every control tick."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder with trained skills")
    parser.add_argument("--out", type=Path, default=Path("fight.gif"), help="picture to write")
    parser.add_argument("--episode", type=int, default=0, help="which of the evaluation's episodes")
    parser.add_argument("--seconds", type=float, default=30.0, help="at most so much of the fight")
    asked = parser.parse_args()
    run = RunFolder.open(asked.run)
    game = make_game()
    rollout = make_agent(run, Setting(run.plan.scenario, run.plan.scenario)).rollout(game)
    frames: list[Image.Image] = []
    rollout.after_tick = lambda: frames.append(Image.fromarray(np.asarray(game.render(0, _SIZE))))
    seeds = evaluation_seeds(0, asked.episode + 1)[-1:]
    episodes = rollout.play(seeds, most_ticks=round(asked.seconds * 1000 / _TICK_MS))
    palette = [frame.quantize(64) for frame in frames]
    palette[0].save(asked.out, save_all=True, append_images=palette[1:], duration=_TICK_MS, loop=0, optimize=True)
    print(f"{asked.out}: {episodes.seconds[0]:.1f} s, won: {bool(episodes.won[0])}")


if __name__ == "__main__":
    main()
