"""Train dodge by a fleet and without one on the same seeds, and write the agents' win rates beside each other.

python examples/compare_fleet.py --first 740 --seeds 10 --work /tmp/fleet --out docs/results/fleet/learning

Each seed is trained twice by preset `best`: all five skills in this process, and with dodge played by eight lanes of
the simulator that a `soulsgraph fleet host` runs at its real pace, times `--speed`. Everything else is the same. A seed
whose tables lie in the work folder is not trained again. Writes JSON with every seed, and the table as Markdown; the
difference is paired by seed, with Student's t interval.
"""

import argparse
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import difference, mean_text
from soulsgraph.results.statistics import mean_interval
from soulsgraph.results.tables import finite, markdown_table
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.machine import usable_processors

START = (sys.executable, "-c", "from soulsgraph.cli import main; main()")
LANES = 8


class Seed:
    """One training seed in its folder of the work folder."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder, self.options = folder, options
        folder.mkdir(parents=True, exist_ok=True)

    def call(self, *words: object) -> None:
        """Run a command of ours in the folder; what it prints goes to a file there."""
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            command = [*START, *map(str, words)]
            subprocess.run(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, check=True)

    def rates(self, run: str) -> dict[str, float] | None:
        """Return a run's win rates in percent, by row; None if it has no table yet."""
        file = self.folder / run / "results" / "table.json"
        if not file.exists():
            return None
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return {row["setting"]: 100.0 * row["rate"] for row in rows}

    def train(self, speed: float) -> None:
        """Train whatever has no table yet."""
        if self.rates("sync") is None:
            self.call("curriculum", "--run", "sync", *self.options)
        if self.rates("async") is None:
            for skill in ("camera", "lock_on", "movement"):
                self.call("train", skill, "--run", "async", *self.options)
            self.train_by_fleet(speed)
            self.call("train", "heal_attack", "--run", "async")
            self.call("evaluate", "async", "--what", "table")

    def train_by_fleet(self, speed: float) -> None:
        """Train dodge from what a host's games play."""
        address, files = f"127.0.0.1:{free_port()}", {"fleet.toml": "", "games.toml": ""}
        files["fleet.toml"] = f'listen = "{address}"\npcs = ["attic"]\n'
        files["games.toml"] = f'[[games]]\ndriver = "simulator"\nspeed = {speed}\nlanes = {LANES}\n'
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        if not (self.folder / "attic.token").exists():
            self.call("fleet", "token", "attic")
        words = ["fleet", "host", "--head", address, "--token-file", "attic.token"]
        words += ["--games", "games.toml", "--spool", "spool"]
        with (self.folder / "host.txt").open("w") as log:
            host = subprocess.Popen([*START, *words], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            self.call("train", "dodge", "--run", "async", "--fleet", "fleet.toml")
        finally:
            host.send_signal(signal.SIGINT)
            host.wait()


def compared(asynchronous: dict[int, float], synchronous: dict[int, float]) -> dict[str, Any]:
    """Return both means over seeds and their paired difference, each with its 95 % interval; in percent."""
    fleet, without = pd.Series(asynchronous), pd.Series(synchronous)
    spreads = {"fleet": fleet, "without": without, "difference": difference(fleet, without)}
    return {
        name: {"mean": one.mean(), **mean_interval(one).columns(), "by_seed": one.to_dict()}
        for name, one in spreads.items()
    }


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=740, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="number of training seeds, at least two")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every skill's budget")
    parser.add_argument("--speed", type=float, default=10.0, help="of the paced games")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("fleet"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.seeds)
    options = {number: ["--preset", "best", "--seed", str(number), "--scale", str(asked.scale)] for number in numbers}
    seeds = {number: Seed(asked.work / str(number), options[number]) for number in numbers}
    # A seed is processes in turn: threads only wait for them.
    with ThreadPoolExecutor(usable_processors()) as pool:
        list(pool.map(lambda seed: seed.train(asked.speed), seeds.values()))
    found = {number: (seed.rates("async") or {}, seed.rates("sync") or {}) for number, seed in seeds.items()}
    rows = {
        row: compared({n: a[row] for n, (a, _) in found.items()}, {n: s[row] for n, (_, s) in found.items()})
        for row in found[asked.first][1]
    }
    settings = {"seeds": [*numbers], "scale": asked.scale, "speed": asked.speed, "lanes": LANES}
    write_json(asked.out.with_suffix(".json"), describe_origin() | settings | {"percent": finite(rows)})
    cells = [(row, *(mean_text(pd.Series(one["by_seed"])) for one in each.values())) for row, each in rows.items()]
    table = markdown_table(("win rate in percent", "dodge by a fleet", "without", "difference"), cells)
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
