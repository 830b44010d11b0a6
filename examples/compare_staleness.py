"""Train dodge and heal-attack in the simulator by weights of different ages, and write the win rates side by side.

python examples/compare_staleness.py --first 770 --seeds 10 --work /tmp/stale --out docs/results/fleet/staleness

Preset `best`. Camera, lock-on and movement are trained once a seed; on top of them dodge and heal-attack are trained
once for each delay in control ticks (0.1 s of game time), 0 first. The networks that play are the newest that are at
least this old; exploration goes by the newest count of decisions. They change between two rounds only, so the
age is measured: its mean over all decisions. A delay whose table lies in the work folder is not trained again. Writes
JSON with every seed, and the table as Markdown; differences are paired by seed, with Student's t interval.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import difference, mean_text
from soulsgraph.results.statistics import mean_interval
from soulsgraph.results.tables import finite, markdown_table
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, trained_artifact
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_policies.learning.env_runners import ChunkRunner
from soulsgraph_policies.learning.sampler import Chunk

START = (sys.executable, "-c", "from soulsgraph.cli import main; main()")
UPSTREAM, DELAYED = ("camera", "lock_on", "movement"), ("dodge", "heal_attack")
ROW, NETWORKS = "heal-attack trained, dodge trained", "rl_module"


class Delay:
    """Stand between a learner and its runner: networks go on when they are `ticks` control ticks old."""

    def __init__(self, runner: ChunkRunner, ticks: int) -> None:
        self._sample, self._set_state = runner.sample, runner.set_state
        self._ticks, self._lanes = ticks, int(runner.config.num_envs_per_env_runner)
        #: Control ticks played so far, and those after which the networks that play now were learned.
        self._now, self._learned = 0.0, 0.0
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque()
        #: Ages of the networks, summed over decisions, and the count of those.
        self.age, self.decisions = 0.0, 0
        runner.set_state, runner.sample = self.receive, self.sample  # type: ignore[method-assign]

    def receive(self, state: dict[str, Any]) -> None:
        """Pass on counts at once, and the newest networks that are old enough."""
        state = dict(state)
        # The learner's arrays change with the next update.
        networks = {
            module: {name: values.copy() for name, values in weights.items()}
            for module, weights in state.pop(NETWORKS).items()
        }
        self._waiting.append((self._now, networks))
        # The first ones are not held back: nothing plays without them.
        while self._waiting and (not self._now or self._now - self._waiting[0][0] >= self._ticks):
            self._learned, state[NETWORKS] = self._waiting.popleft()
        self._set_state(state)

    def sample(self, **_: Any) -> list[Chunk]:
        """Sample, and note how old the networks were in the middle of it."""
        (chunk,) = self._sample()
        ticks, count = chunk.lane_ticks / self._lanes, chunk.env_steps()
        self.age += (self._now + ticks / 2 - self._learned) * count
        self.decisions += count
        self._now += ticks
        return [chunk]


def train(run: RunFolder, skill: str, ticks: int) -> float:
    """Train one skill by weights that are `ticks` old, and save it; return the mean age really played by."""
    stage = run.plan.stage(skill)
    setup = StageSetup(run, stage)
    algorithm = setup.build(Session(local=True))
    delay = Delay(algorithm.env_runner, ticks)
    while not algorithm.finished:
        algorithm.train()
    weights, learned = algorithm.weights(skill), algorithm.training[skill]
    run.library.save(trained_artifact(setup, weights, learned.normalizer, learned.decisions))
    algorithm.stop()
    return delay.age / delay.decisions


def call(folder: Path, *words: object) -> None:
    """Run a command of ours in a folder; what it prints goes to a file there."""
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        subprocess.run([*START, *map(str, words)], cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=True)


def upstream(folder: Path, options: list[str]) -> Path:
    """Return a run folder with everything upstream of dodge trained, trained now unless it is there."""
    run = folder / "upstream"
    if not (folder / "upstream.done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for skill in UPSTREAM:
            call(folder, "train", skill, "--run", run.name, *options)
        (folder / "upstream.done").touch()
    return run


def measure(folder: Path, options: list[str], ticks: int) -> dict[str, Any]:
    """Return the win rate in percent with both skills trained by such weights, and the mean age by skill."""
    source, run, file = upstream(folder, options), folder / f"delay-{ticks}", folder / f"delay-{ticks}.json"
    if not file.exists():
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(source, run)
        ages = {skill: train(RunFolder.open(run), skill, ticks) for skill in DELAYED}
        call(folder, "evaluate", run.name, "--what", "table")
        rows = json.loads((run / "results" / "table.json").read_text(encoding="utf-8"))["rows"]
        percent = next(100.0 * row["rate"] for row in rows if row["setting"] == ROW)
        write_json(file, {"percent": percent, "age": ages})
    measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return measured


def described(spread: pd.Series) -> dict[str, Any]:
    """Return the mean over seeds with its 95 % interval, and every seed."""
    return {"mean": spread.mean(), **mean_interval(spread).columns(), "by_seed": spread.to_dict()}


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=770, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="number of training seeds, at least two")
    parser.add_argument("--delays", type=int, nargs="+", default=[10, 50, 300], help="in control ticks, beside 0")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every skill's budget")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("staleness"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    numbers, origin = range(asked.first, asked.first + asked.seeds), describe_origin()
    found: dict[int, dict[int, dict[str, Any]]] = {delay: {} for delay in (0, *asked.delays)}
    for number in numbers:
        options = ["--preset", "best", "--seed", str(number), "--scale", str(asked.scale)]
        for delay, by_seed in found.items():
            by_seed[number] = measure(asked.work / str(number), options, delay)
    rates = {delay: pd.Series({n: one["percent"] for n, one in by_seed.items()}) for delay, by_seed in found.items()}
    results, cells = [], []
    for delay, rate in rates.items():
        beside = difference(rate, rates[0])
        ages = {skill: mean(one["age"][skill] for one in found[delay].values()) for skill in DELAYED}
        results.append({"delay": delay, "age": ages, "percent": described(rate), "difference": described(beside)})
        shown = (mean_text(one) for one in (rate, beside))
        cells.append((str(delay), *(f"{age:.1f}" for age in ages.values()), *shown))
    settings = {"row": ROW, "preset": "best", "seeds": [*numbers], "scale": asked.scale}
    write_json(asked.out.with_suffix(".json"), origin | settings | {"results": finite(results)})
    headings = ("delay in control ticks", "mean age, dodge", "mean age, heal-attack", "both trained, % won", "less 0")
    table = markdown_table(headings, cells)
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
