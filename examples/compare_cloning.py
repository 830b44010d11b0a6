"""Train agents from clones of a poor player and from nothing on the same seeds, and write their win rates.

python examples/compare_cloning.py --first 1000 --seeds 10 --work /tmp/cloning --out docs/results/cloning/cloning

The player is the oracle, acting 0.2 s late, with a tenth of every skill's decisions drawn at random; every seed has
fights of its own to clone. Each of the five skills is trained by preset `best` for a number of decisions and for its
whole budget, with the schedules of that budget. What the work folder holds of a seed is not done again, so several of
these may work beside each other on seeds of their own. Writes JSON with every seed, and the table as Markdown;
differences are paired by seed, with Student's t interval.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd

from soulsgraph.paper.seed_job import train_by
from soulsgraph.recordings.cloning import clone_fights
from soulsgraph.recordings.files import read_header, recording_files
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import difference, figures_of, mean_text
from soulsgraph.results.tables import finite, markdown_table
from soulsgraph.runs.evaluate import Setting, evaluation_seeds, make_agent, play
from soulsgraph.runs.lineage import own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import ShownProgress, interruptible, silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.agent import Agent

HOME = "iudex-phase1"
DELAY_TICKS, RANDOM = 2, 0.1
#: Where the fights to clone and those of the evaluation begin; no training has these seeds.
SHOWN_SEED, EVALUATED_SEED = 50_000, 60_000
PLAYER, CLONED, SCRATCH = "player", "cloned", "scratch"


class Training:
    """What `train_by` reports to: it counts the decisions of all trainings of a seed."""

    def __init__(self, shown: ShownProgress, stop_requested: Callable[[], bool]) -> None:
        self.stop_requested = stop_requested
        self._shown, self._before, self._stage = shown, 0, 0

    def follow(self, name: str, total: int) -> Training:
        """Begin a stage."""
        self._before, self._stage = self._before + self._stage, total
        return self

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Show how far the seed is."""
        self._shown.update(self._before + steps, mean_return)


def measure(folder: Path, seed: int, asked: argparse.Namespace, worker: WorkerProcess) -> dict[str, float]:
    """Do what a seed's folder lacks, and return win rates in percent by what they are of."""
    fights, clones = folder / "fights", opened(folder / "clones", seed, asked.scale)
    fighter = Fighter.oracle(HOME, random=RANDOM, delay=DELAY_TICKS)
    record(fighter, evaluation_seeds(SHOWN_SEED + seed, asked.fights), fights)
    won = [read_header(path).result.outcome == "won" for path in recording_files(fights)]
    order = clones.plan.skill_graph.order
    if missing := [skill for skill in order if not clones.library.versions(skill)]:
        clone_fights(clones, fights, missing)
    nothing = Agent(load_scenario(HOME), tuple(map(make_skill, order)), replaced=dict.fromkeys(order, "random"))
    seeds = evaluation_seeds(EVALUATED_SEED, asked.episodes)
    found = {
        PLAYER: sum(won) / len(won),
        f"{CLONED}, 0": rate(clones, seeds),
        f"{SCRATCH}, 0": play(nothing, seeds).win_rate,
    }
    budgets = {str(asked.small): asked.small, "full": None}
    total = 2 * sum(small or clones.plan.budget(skill) for small in budgets.values() for skill in order)
    with interruptible() as interrupted, stage_progress(f"seed {seed}", total) as shown:
        training = Training(shown, interrupted)
        for kind, (name, budget) in product((CLONED, SCRATCH), budgets.items()):
            if kind == CLONED and not (folder / f"{kind}-{name}").exists():
                shutil.copytree(clones.path, folder / f"{kind}-{name}")
            run = opened(folder / f"{kind}-{name}", seed, asked.scale)
            for skill in order:
                stage = own_stage(run, skill)
                train_by("soulsgraph", run, (replace(stage, budget=budget or stage.budget),), training, worker)
            found[f"{kind}, {name}"] = rate(run, seeds)
    return {name: 100.0 * share for name, share in found.items()}


def opened(path: Path, seed: int, scale: float) -> RunFolder:
    """Return the run in a folder, begun if it is not there."""
    return (
        RunFolder.open(path) if path.exists() else RunFolder.create(path, Plan(preset="best", seed=seed, scale=scale))
    )


def rate(run: RunFolder, seeds: Seeds) -> float:
    """Return the share of fights that a run's agent wins in the run's own scenario."""
    return play(make_agent(run, Setting(HOME, HOME)), seeds).win_rate


def rows(found: Mapping[int, Mapping[str, float]], small: str) -> dict[str, pd.Series]:
    """Return every rate over seeds, and the differences that say whether clones are worth it, paired by seed."""
    spreads = {str(name): by_seed for name, by_seed in pd.DataFrame.from_dict(found, "index").items()}
    pairs = [(f"{CLONED}, {small}", f"{SCRATCH}, {small}"), (f"{CLONED}, {small}", f"{CLONED}, 0")]
    for one, other in (*pairs, (f"{CLONED}, full", f"{SCRATCH}, full")):
        spreads[f"{one} less {other}"] = difference(spreads[one], spreads[other])
    return spreads


def main() -> None:
    """Record, clone, train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000, help="first training seed")
    parser.add_argument("--seeds", type=int, default=10, help="number of training seeds, at least two")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every skill's whole budget")
    parser.add_argument("--fights", type=int, default=20, help="fights to clone")
    parser.add_argument("--small", type=int, default=5_000, help="decisions of every skill in the short trainings")
    parser.add_argument("--episodes", type=int, default=400, help="fights of every evaluation")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("cloning"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    silence_advice()
    found: dict[int, dict[str, float]] = {}
    with WorkerProcess() as worker:
        for seed in range(asked.first, asked.first + asked.seeds):
            file = asked.work / str(seed) / "rates.json"
            if not file.exists():
                write_json(file, describe_origin() | {"percent": measure(file.parent, seed, asked, worker)})
            found[seed] = json.loads(file.read_text(encoding="utf-8"))["percent"]
    spreads = rows(found, str(asked.small))
    settings = {
        "seeds": [*found],
        "scale": asked.scale,
        "fights": asked.fights,
        "delay_ticks": DELAY_TICKS,
        "random": RANDOM,
    }
    figures = {name: figures_of(one) | {"by_seed": one.to_dict()} for name, one in spreads.items()}
    write_json(asked.out.with_suffix(".json"), describe_origin() | settings | {"percent": finite(figures)})
    cells = [(name, mean_text(one)) for name, one in spreads.items()]
    table = markdown_table(("decisions of each skill", "win rate in percent"), cells)
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
