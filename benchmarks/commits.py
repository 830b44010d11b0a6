"""Benchmarks of an earlier commit and of the working tree in turn: the median of the rounds' ratios, and its range.

    python benchmarks/commits.py b124e21 --rounds 10 --json FILE

Each round runs either tree's own `bench.py` once, one after the other, in this environment's Python.
A rate beside ours (stable-baselines3's, stock RLlib's, the machine's own) shows what the machine does to a ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import make_parser, report
from speed import spread

_ROOT = Path(__file__).parents[1]
_FLOORS = ("platform", "clusters", "policies", "envs")
_PATIENCE_S = 1_800.0


def bench(tree: Path, what: str) -> dict[str, float]:
    """Return what one benchmark of a checkout measures: rates per CPU second, and ticks per CPU millisecond."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(str(tree / floor) for floor in _FLOORS))
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "rates.json")
        # Either tree's own: it measures by the names that its code has.
        script = tree / "benchmarks" / "bench.py"
        command = [sys.executable, str(script), what, "--rounds", "1", "--json", str(kept)]
        subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, timeout=_PATIENCE_S, check=True)
        return dict(_rate(result) for result in json.loads(kept.read_text())["results"])


def _rate(result: dict[str, Any]) -> tuple[str, float]:
    name = ", ".join(str(result[part]) for part in ("skill", "lanes", "name") if part in result)
    return name, result["per_cpu_s"]["median"] if "per_cpu_s" in result else 1 / result["cpu_ms"]["median"]


def compare(earlier: Path, benchmarks: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Return for each measured rate the ratios now to earlier, over the rounds."""
    for what in benchmarks:
        ratios = defaultdict(list)
        for number in range(rounds):
            # Who begins changes: a machine that warms up, or is used by others, would favour one side.
            trees = (earlier, _ROOT) if number % 2 else (_ROOT, earlier)
            rates = {tree: bench(tree, what) for tree in trees}
            for name, rate in rates[_ROOT].items():
                ratios[name].append(rate / rates[earlier][name])
        for name, rows in ratios.items():
            ratio = spread(rows)
            yield {"bench": what, "name": name, "rounds": rounds, "ratio": ratio, "load": os.getloadavg()[0]}


def main() -> None:
    """Print the ratio of each rate."""
    parser = make_parser(__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--only", nargs="+", default=["sim", "tick", "train"], help="benchmarks to compare")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder, "earlier")
        subprocess.run(["git", "worktree", "add", "--detach", earlier, asked.commit], cwd=_ROOT, check=True)
        try:
            report(compare(earlier, asked.only, asked.rounds), _line, asked)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", earlier], cwd=_ROOT, check=True)


def _line(result: dict[str, Any]) -> str:
    ratio = result["ratio"]
    return (
        f"{result['bench']}: {result['name']}: {ratio['median']:.3f} ({ratio['lowest']:.3f} to {ratio['highest']:.3f} "
        f"in {result['rounds']} rounds; load {result['load']:.1f})"
    )


if __name__ == "__main__":
    main()
