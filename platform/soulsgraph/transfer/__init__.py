"""Selective adaptation: what a shift does to each skill, what to adapt, what that gains and costs.

Here is what all of it is asked for: a scenario, and runs that differ in nothing but their seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.errors import SoulsGraphError


@dataclass(frozen=True)
class TransferOptions:
    """Which scenario a run is taken to, and how it is evaluated there."""

    scenario: str = "iudex-phase2"
    """Scenario to transfer to: a name or a TOML file."""
    home: str | None = None
    """Scenario whose versions play; the run's own, or the last one adapted to for recovery, if not given."""
    episodes: int = 200
    """Episodes of each trial."""
    seed: int = EVALUATION_SEED
    """Seed of the evaluation episodes, the same for every trial."""

    def __post_init__(self) -> None:
        check_evaluation(self.seed, self.episodes)
        object.__setattr__(self, "scenario", lasting_name(self.scenario))
        object.__setattr__(self, "home", self.home and lasting_name(self.home))


@dataclass(frozen=True, kw_only=True)
class Question(TransferOptions):
    """What a transfer is measured for: options whose `home`, the domain the playing versions are of, is known."""

    home: str


def open_seeds(folders: Sequence[Path]) -> dict[int, RunFolder]:
    """Open runs, or agents of the zoo for reading, that differ in nothing but their seed, by seed in the order given.

    Raises:
        SoulsGraphError: if none is given, one is no run, two have the same seed, or their plans differ otherwise.
    """
    if not folders:
        raise SoulsGraphError("RUN: expected one or more run folders, found none; name one.")
    runs: dict[int, RunFolder] = {}
    for folder in folders:
        run = open_run(folder)
        first = next(iter(runs.values()), run)
        if run.plan.seed in runs:
            raise SoulsGraphError(
                f"{folder}: expected a run of another seed than {runs[run.plan.seed].path}, found seed "
                f"{run.plan.seed} again; name each seed once."
            )
        if replace(run.plan, seed=first.plan.seed) != first.plan:
            raise SoulsGraphError(
                f"{folder}: expected the plan of {first.path} but for its seed, found another; "
                "compare runs of one plan, others by a call of their own."
            )
        runs[run.plan.seed] = run
    return runs


def _check_same(values: Mapping[int, str], asked: str, remedy: str) -> None:
    """Refuse seeds that differ in a value; `asked` begins the error and has the place of the value."""
    (first, expected), *others = values.items()
    for seed, value in others:
        if value != expected:
            raise SoulsGraphError(f"{asked.format(expected, first)}, found {value} for seed {seed}; {remedy}.")


def check_chains(chains: Mapping[int, tuple[str, ...]]) -> None:
    """Make sure that every seed went through the same domains.

    Raises:
        SoulsGraphError: naming two seeds and their chains.
    """
    _check_same(
        {seed: " -> ".join(chain) for seed, chain in chains.items()},
        "retention: expected every seed to go through {} as seed {} did",
        "adapt it in the same order or leave it to a call of its own",
    )


def check_sources(sources: Mapping[int, str], command: str, remedy: str) -> None:
    """Make sure that every seed plays the versions of the same scenario; a command's error ends with its `remedy`.

    Raises:
        SoulsGraphError: naming two seeds and their scenarios.
    """
    _check_same(sources, f"{command}: expected every seed to play the versions of {{}} as seed {{}} does", remedy)
