"""Learn a skill from pictures: stable-baselines3's DQN with its CnnPolicy (Mnih et al., 2015) on the camera's task.

python examples/pixels.py --budget 6000 --out docs/results/pixels/camera

The agent sees 84 x 84 grey pixels and no values. Every tenth of the budget it plays 20 held-out fights greedily; the
file has these returns, those of random play and of an agent that sees values, and the picture shows them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN

import soulsgraph_envs  # noqa: F401 - registers the environments
from soulsgraph.results.origin import describe_run
from soulsgraph_envs.core.files import write_json

ID, FIGHTS, HELD_OUT = "soulsgraph/Camera-v0", 20, 1_000_000
POLICIES = {"pixels": "CnnPolicy", "values": "MlpPolicy"}
#: What differs from stable-baselines3's defaults: a small replay, and a horizon of some ten decisions.
OPTIONS: dict[str, Any] = {
    "buffer_size": 8_000,
    "learning_starts": 200,
    "learning_rate": 5e-4,
    "exploration_fraction": 0.4,
    "target_update_interval": 250,
    "gamma": 0.9,
}


def returns_of(choose: Any, observation: str) -> list[float]:
    """Return what an agent earns in each of the held-out fights, which are the same ones every time."""
    fights = gymnasium.make_vec(ID, FIGHTS, observation=observation, autoreset_mode="Disabled")
    seen, _ = fights.reset(seed=HELD_OUT)
    total, over = np.zeros(FIGHTS), np.zeros(FIGHTS, bool)
    while not over.all():  # All last as long: nobody dies.
        seen, rewards, terminated, truncated, _ = fights.step(choose(seen))
        total, over = total + rewards, terminated | truncated
    fights.close()
    return [round(float(one), 3) for one in total]


def train(observation: str, budget: int, seed: int) -> dict[str, Any]:
    """Train an agent and return its curve: decisions, CPU seconds, and returns of the held-out fights."""
    env = gymnasium.make(ID, observation=observation)
    model = DQN(POLICIES[observation], env, seed=seed, device="cpu", **OPTIONS)
    curve, spent_s = [], 0.0
    for step in range(11):
        if step:
            begun_s = time.process_time()
            model.learn(budget // 10, reset_num_timesteps=step == 1)
            spent_s += time.process_time() - begun_s
        returns = returns_of(lambda seen: model.predict(seen, deterministic=True)[0], observation)
        curve.append({"decisions": step * (budget // 10), "cpu_s": round(spent_s, 1), "returns": returns})
        print(observation, seed, curve[-1]["decisions"], round(float(np.mean(returns)), 1), flush=True)
    env.close()
    return {"observation": observation, "seed": seed, "curve": curve}


def draw(runs: list[dict[str, Any]], random: list[float], path: Path) -> None:
    """Draw the mean return of every run over its decisions."""
    from matplotlib.figure import Figure

    from soulsgraph.results.figures import save_figure

    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        means = [np.mean(one["returns"]) for one in run["curve"]]
        colour, first = ("C0", "C1")[run["observation"] == "values"], run["seed"] == runs[0]["seed"]
        label = f"{POLICIES[run['observation']]} from {run['observation']}" if first else None
        axes.plot([one["decisions"] for one in run["curve"]], means, color=colour, label=label)
    axes.axhline(float(np.mean(random)), color="grey", linestyle=":", label="random play")
    axes.set(xlabel="decisions", ylabel=f"return, mean of {FIGHTS} held-out fights")
    axes.legend()
    save_figure(figure, path)


def main() -> None:
    """Train from pictures and from values, and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=8_000, help="decisions of each training")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each kind")
    parser.add_argument("--out", type=Path, default=Path("camera"), help="files to write, less .json and .png")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    origin, random = describe_run(), np.random.default_rng(0)
    drawn = returns_of(lambda seen: random.integers(5, size=FIGHTS), "values")
    runs = [train(kind, asked.budget, seed) for kind in POLICIES for seed in range(asked.seeds)]
    settings = {"id": ID, "budget": asked.budget, "options": OPTIONS, "random": drawn}
    write_json(asked.out.with_suffix(".json"), origin | settings | {"runs": runs})
    draw(runs, drawn, asked.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
