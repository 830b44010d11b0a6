"""Train one_file.py and preset `fast` on the same seeds, and write their win rates beside each other.

python examples/compare_one_file.py --first 600 --seeds 10 --out docs/results/one-file

Writes JSON with every seed, commit and machine, and the table as Markdown. Means over training seeds have Student's t
intervals, their difference has Welch's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.statistics import Interval, mean_interval, welch_interval
from soulsgraph.results.tables import markdown_table, with_interval
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.machine import usable_processors

ONE_FILE = Path(__file__).with_name("one_file.py")
#: The rows of the paper's Table 1a, by their names in the curriculum's table and in one_file.py's.
ROWS = {
    "heal-attack random, dodge random": "heal_attack and dodge random",
    "heal-attack random, dodge trained": "heal_attack random",
    "heal-attack trained, dodge random": "dodge random",
    "heal-attack trained, dodge trained": "nothing random",
}


def _printed(*words: object) -> Any:
    done = subprocess.run([sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def one_file(seed: int, scale: float, episodes: int) -> dict[str, float]:
    """Return the win rates of one_file.py in percent, by row."""
    rates = _printed(ONE_FILE, "--seed", seed, "--scale", scale, "--episodes", episodes, "--json")
    return {row: rates[name] for row, name in ROWS.items()}


def fast(seed: int, scale: float, episodes: int) -> dict[str, float]:
    """Return the win rates of preset `fast` in percent, by row."""
    options = ("--preset", "fast", "--seed", seed, "--scale", scale, "--episodes", episodes, "--json")
    with tempfile.TemporaryDirectory() as folder:
        start = "from soulsgraph.cli import main; main()"
        table = _printed("-c", start, "curriculum", "--run", Path(folder, "run"), *options)
    rates = {row["setting"]: 100.0 * row["rate"] for row in table["rows"]}
    return {row: rates[row] for row in ROWS}


def compared(mine: list[float], preset: list[float]) -> dict[str, Any]:
    """Return both means over seeds, and mine less the preset's, each with its 95 % interval; in percent."""
    return {
        "one_file": _figure(float(np.mean(mine)), mean_interval(mine)) | {"by_seed": mine},
        "fast": _figure(float(np.mean(preset)), mean_interval(preset)) | {"by_seed": preset},
        "difference": _figure(float(np.mean(mine) - np.mean(preset)), welch_interval(mine, preset)),
    }


def _figure(mean: float, interval: Interval) -> dict[str, Any]:
    """Return a mean and its interval; JSON has no infinite ends."""
    low, high = (end if np.isfinite(end) else None for end in interval)
    return {"mean": mean, "low": low, "high": high}


def _cell(figure: dict[str, Any]) -> str:
    ends = (infinite if end is None else end for end, infinite in ((figure["low"], -np.inf), (figure["high"], np.inf)))
    return with_interval(figure["mean"], Interval(*ends))


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=600, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="number of training seeds")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every skill's budget")
    parser.add_argument("--episodes", type=int, default=400, help="evaluation episodes a row")
    parser.add_argument("--out", type=Path, default=Path("one-file"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    seeds, origin = list(range(asked.first, asked.first + asked.seeds)), describe_origin()

    def train(seed: int) -> tuple[dict[str, float], dict[str, float]]:
        rates = one_file(seed, asked.scale, asked.episodes), fast(seed, asked.scale, asked.episodes)
        print(f"seed {seed}: {json.dumps(rates)}", file=sys.stderr, flush=True)
        return rates

    # A seed is two processes in turn: threads only wait for them.
    with ThreadPoolExecutor(usable_processors()) as pool:
        trained = list(pool.map(train, seeds))
    rows = {row: compared([mine[row] for mine, _ in trained], [theirs[row] for _, theirs in trained]) for row in ROWS}
    settings = {"seeds": seeds, "scale": asked.scale, "episodes": asked.episodes}
    write_json(asked.out.with_suffix(".json"), origin | settings | {"percent": rows})
    cells = [(row, *(_cell(found[key]) for key in ("one_file", "fast", "difference"))) for row, found in rows.items()]
    table = markdown_table(("win rate in percent", "`one_file.py`", "`fast`", "difference"), cells)
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
