"""Which skills the rule of a continual study selects for labelled shifts, beside what training each skill again wins.

It takes the agents that a study trained in its first task, the fight that the labelled shifts change:
python benchmarks/selection.py runs/continual/S8 --shifts 3 --first-shift 20001 --json selection.json

With `--truth` every skill of each agent is trained again in one shift of each kind, for a task's whole budget.
"""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from soulsgraph.continual.methods.learning import PlayedFights, TaskWorld, Versions, learn
from soulsgraph.continual.methods.method import whole
from soulsgraph.continual.selecting import Home, select
from soulsgraph.continual.study import ContinualFolder
from soulsgraph.continual.unit import stage_seed
from soulsgraph.runs.evaluate import EVALUATION_SEED, evaluation_seeds, play
from soulsgraph_envs.continual.families import load_family
from soulsgraph_policies.learning.checkpoint import read_training_state

FAMILY = "labelled"


def bench_selection(folder: ContinualFolder, asked: Namespace) -> Iterator[dict[str, Any]]:
    """Select skills for shifts of every kind, by every agent of a study; train each skill alone where that is asked."""
    known: dict[int, PlayedFights] = defaultdict(PlayedFights)
    for kind in asked.kinds or load_family(FAMILY).kinds:
        for agent, seed in enumerate(folder.plan.seeds[: asked.agents]):
            home = folder.plan.worlds(folder.plan.plan(seed))[0]
            versions = whole(read_training_state(folder.first(seed)))["method"]["newest"]
            for shift in range(asked.shifts):
                drawn = asked.first_shift + agent * asked.shifts + shift
                # At a position of its own each is played by seeds of its own.
                world = replace(home, position=1 + drawn, name=f"generated/{FAMILY}-{kind}/{drawn}")
                selection = select({skill: [Home(home, versions)] for skill in versions}, world, versions, known[seed])
                row = {"kind": kind, "agent": seed, "shift": drawn, "skills": list(selection.skills)}
                row |= {"decisions": selection.decisions, "reasons": dict(selection.reasons)}
                if asked.truth and not shift:
                    row |= _truth(world, versions, folder.plan.budget(1), seed)
                yield row


class _Unwatched:
    """A supervisor that shows nothing and asks for nothing."""

    def follow(self, name: str, total: int) -> _Unwatched:
        """Return who follows a stage."""
        return self

    def update(self, *_: object) -> None:
        """Take what was done."""

    def stop_requested(self) -> bool:
        """Ask for no stop: an interruption ends the program."""
        return False


def _truth(world: TaskWorld, versions: Versions, budget: int, seed: int) -> dict[str, Any]:
    """Return the wins before and after each skill alone was trained again, all others as they were."""
    wins = {"before": _wins(world, versions)}
    for index, skill in enumerate(world.plan.skill_graph.order):
        learned = learn(_Unwatched(), world, skill, versions, versions[skill], budget, stage_seed(seed, 1, index))
        wins[skill] = _wins(world, {**versions, skill: learned.version})
    return {"wins_of_200": wins}


def _wins(world: TaskWorld, versions: Versions) -> int:
    return int(play(world.agent(versions), evaluation_seeds(EVALUATION_SEED, 200)).won.sum())


def describe(row: dict[str, Any]) -> str:
    """Return what was selected for one shift as a line."""
    selected = ", ".join(f"{skill} ({row['reasons'][skill]})" for skill in row["skills"]) or "none"
    truth = f"; of 200 fights won {row['wins_of_200']}" if "wins_of_200" in row else ""
    return f"{row['kind']} {row['shift']}, agent {row['agent']}: {selected}, {row['decisions']} decisions{truth}"


def main() -> None:
    """Measure, print."""
    parser = common.make_parser(__doc__)
    parser.add_argument("study", type=Path, help="folder of a continual study whose first tasks are trained")
    parser.add_argument("--agents", type=int, default=None, help="how many of the study's agents; all if not given")
    parser.add_argument("--kinds", nargs="*", help="kinds of shifts; all if not given")
    parser.add_argument("--shifts", type=int, default=1, help="shifts of each kind and agent")
    parser.add_argument("--first-shift", type=int, default=20_001, help="seed of the first of them")
    parser.add_argument("--truth", action="store_true", help="train each skill alone again, in the first of them")
    asked = parser.parse_args()
    common.report(bench_selection(ContinualFolder.open(asked.study), asked), describe, asked)


if __name__ == "__main__":
    main()
