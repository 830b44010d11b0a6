"""Train dodges by stable-baselines3 among scripts and among an agent's own skills, and let that agent play with them.

    python benchmarks/imported_dodge.py --seeds 3 --kept runs/imported_dodge --out docs/results/imported-dodge

The learner is the paper's: a DQN of its hyperparameters on normalised observations, 80,000 decisions. `scripts` are the
upstream skills of `soulsgraph/Dodge-v0`, `own` those of the agent (`run.make("dodge")`). Each dodge is imported by
`soulsgraph data import`; wins and returns are over the same 400 fights, those of the agent's own dodge too. The same
command goes on. Writes JSON with commit, machine and every seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import soulsgraph as sg
from soulsgraph.results.origin import describe_origin
from soulsgraph_envs.core.files import write_json

AGENT, STEPS, EPISODES = "iudex-phase1-paper-0", 80_000, 400
UPSTREAM = ("scripts", "own")
#: The paper's, Appendix C; what it does not name is stable-baselines3's default.
HYPERPARAMETERS: dict[str, Any] = {
    "learning_rate": 3e-4,
    "buffer_size": STEPS // 3,
    "batch_size": 256,
    "train_freq": 4,
    "target_update_interval": 10_000,
}


def made(run: sg.Run, upstream: str) -> gymnasium.Env[Any, Any]:
    """Make the dodge's environment with scripts upstream, or with the run's own skills."""
    environment: gymnasium.Env[Any, Any] = (run if upstream == "own" else sg).make("dodge")
    return environment


def trained(kept: Path, run: sg.Run, upstream: str, seed: int) -> Path:
    """Train a dodge and return the file of it, that of an earlier call if there is one; statistics lie beside it."""
    file = kept / f"{upstream}-{seed}.zip"
    if not file.exists():
        fights = VecNormalize(DummyVecEnv([lambda: made(run, upstream)]), norm_reward=False)
        model = DQN("MlpPolicy", fights, seed=seed, **HYPERPARAMETERS)
        model.learn(STEPS)
        known = {"mean": fights.obs_rms.mean.tolist(), "variance": fights.obs_rms.var.tolist(), "clip": 10.0}
        write_json(file.with_suffix(".json"), known)
        model.save(file)
    return file


def wins(run: sg.Run) -> int:
    """Return how many fights of its own scenario a run wins."""
    return round(run.evaluate(episodes=EPISODES).win_rate * EPISODES)


def returns(run: sg.Run, playing: sg.Run) -> dict[str, Any]:
    """Return the mean return of a run's dodge among scripts and among the skills of `run`."""
    policy, means = playing.skills["dodge"], dict[str, Any]()
    for upstream in UPSTREAM:
        environment, ended = made(run, upstream), []
        for fight in range(EPISODES):
            observation, _ = environment.reset(seed=1_000_000 + fight)
            total, over = 0.0, False
            while not over:
                observation, reward, *ends, _ = environment.step(policy.act(np.asarray(observation)))
                total, over = total + float(reward), any(ends)
            ended.append(total)
        means[f"return_{upstream}"] = float(np.mean(ended))
    return means


def main() -> None:
    """Train, import, play, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds of each kind, from 0")
    parser.add_argument("--kept", type=Path, default=Path("runs/imported_dodge"), help="folder of what was trained")
    parser.add_argument("--out", type=Path, default=Path("imported_dodge"), help="file to write, less .json")
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    origin, run = describe_origin(), sg.load(AGENT)
    own = {"trained_among": "own", "by": "soulsgraph", "seed": 0}
    rows = [own | {"wins": wins(run)} | returns(run, run)]
    for upstream in UPSTREAM:
        for seed in range(asked.seeds):
            file, folder = trained(asked.kept, run, upstream, seed), asked.kept / f"{upstream}-{seed}"
            if not folder.exists():
                begin = [sys.executable, "-m", "soulsgraph"]
                subprocess.run([*begin, "zoo", AGENT, "--run", folder], check=True, capture_output=True)
                words = ["data", "import", file, "--skill", "dodge", "--run", folder]
                words += ["--statistics", file.with_suffix(".json")]
                subprocess.run([*begin, *map(str, words)], check=True, capture_output=True)
            playing = sg.open(folder)
            row = {"trained_among": upstream, "by": "stable-baselines3", "seed": seed}
            rows.append(row | {"wins": wins(playing)} | returns(run, playing))
            print(json.dumps(rows[-1]), flush=True)
    write_json(asked.out.with_suffix(".json"), origin | {"agent": AGENT, "episodes": EPISODES, "dodges": rows})


if __name__ == "__main__":
    main()
