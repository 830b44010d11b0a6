"""What five skills take from nothing to an agent that wins nine greedy fights in ten, by every learner.

python benchmarks/efficiency.py --rounds 3 --out runs/efficiency

Decisions and CPU seconds, by preset and by stable-baselines3, a training seed a round. The folder holds a file for each
training, and the figure; a measurement goes on with one that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from rich.console import Console

import common
from soulsgraph.paper.seed_job import train_by
from soulsgraph.results.figures import BLUE, GREY, styled
from soulsgraph.results.origin import source_commit
from soulsgraph.runs.evaluate import (
    CURVE_SEED,
    checkpoint_files,
    evaluation_seeds,
    load_checkpoint,
    play_variants,
    with_variants,
)
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption, ShownProgress, interruptible, silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.config import Where, load
from soulsgraph_envs.core.files import check_writable, whole_file, write_json
from soulsgraph_envs.core.scenario import load_scenario

#: Learners by the names in a table: the preset, and the package that learns.
LEARNERS = {
    "best": ("best", "soulsgraph"),
    "fast": ("fast", "soulsgraph"),
    "paper": ("paper", "soulsgraph"),
    "stable-baselines3": ("paper", "stable-baselines3"),
}
#: The share of greedy fights that a checkpoint has to win, of how many; all play the same.
WINS, FIGHTS = 0.9, 100
#: The report's seeds and those that anything was chosen on lie elsewhere.
FIRST_SEED = 700
_BATCH = 5
#: Long enough for an update of every learner.
_WARM_UP_SCALE = 0.02


@dataclass(frozen=True)
class LearnerCost:
    """What one learner took with one seed, of all five skills; None where no checkpoint won so often.

    `cpu_s` are CPU seconds of the process that trains; neither the learning curve nor these fights count.
    """

    learner: str
    seed: int
    commit: str | None
    decisions: int | None
    cpu_s: float | None
    trained_decisions: int
    trained_cpu_s: float


class Stopwatch:
    """Note the CPU time at every report of a stage, as `train_by`'s supervisor, and show the progress of them all."""

    def __init__(self, shown: ShownProgress, stop_requested: Callable[[], bool]) -> None:
        self.stop_requested = stop_requested
        #: CPU seconds by the decisions of all stages so far.
        self.cpu_s: dict[int, float] = {}
        self._shown, self._began_s = shown, time.process_time()
        self._before, self._until = 0, 0

    def follow(self, name: str, total: int) -> Stopwatch:
        """Count a stage's decisions on top of those of the stages before."""
        self._before, self._until = self._until, self._until + total
        return self

    def update(self, steps: int, mean_return: float | None = None) -> None:
        """Note the time."""
        self.cpu_s[self._before + steps] = self.elapsed_s()
        self._shown.update(self._before + steps, mean_return)

    def elapsed_s(self) -> float:
        """Return the CPU seconds of this process since the beginning."""
        return time.process_time() - self._began_s


def bench_efficiency(seeds: int, folder: Path, console: Console | None = None) -> Iterator[dict[str, Any]]:
    """Train by every learner with every seed, draw `efficiency.png`, and return each learner's result.

    What the folder holds of the same commit is not measured again.

    Raises:
        Interruption: if a stop was asked for; what was measured so far is kept.
        SoulsGraphError: if the folder cannot be written, or a file in it is damaged.
    """
    check_writable(folder)
    silence_advice()
    spent: dict[str, list[LearnerCost]] = {name: [] for name in LEARNERS}
    warm: set[str] = set()
    with WorkerProcess() as worker:
        for seed, name in product(range(FIRST_SEED, FIRST_SEED + seeds), LEARNERS):
            file = folder / f"{name}-{seed}.json"
            known = load(LearnerCost, Where(file)) if file.exists() else None
            if known is None or known.commit != source_commit():
                try:
                    if name not in warm:
                        measure(name, seed, worker, Console(quiet=True), _WARM_UP_SCALE)
                    known = measure(name, seed, worker, console)
                except Interruption as stop:
                    go_on = f"python benchmarks/efficiency.py --rounds {seeds} --out {folder}"
                    raise Interruption(f"stopped; what was measured before is kept: go on with {go_on}") from stop
                warm.add(name)
                write_json(file, asdict(known))
            spent[name].append(known)
    results = [summary(of_learner) for of_learner in spent.values()]
    with whole_file(folder / "efficiency.png") as temporary:
        draw(results).savefig(temporary, format="png")
    yield from results


def measure(
    learner: str, seed: int, worker: WorkerProcess, console: Console | None = None, scale: float = 1.0
) -> LearnerCost:
    """Train the five skills, and look for the first checkpoint of the last one that wins often enough.

    Raises:
        Interruption: if a stop was asked for.
    """
    preset, package = LEARNERS[learner]
    with TemporaryDirectory() as name:
        run = RunFolder.create(Path(name), Plan(preset=preset, seed=seed, scale=scale))
        stages = run.plan.stages()
        before, whole = (sum(stage.budget for stage in part) for part in (stages[:-1], stages))
        with interruptible() as interrupted, stage_progress(f"{learner}, seed {seed}", whole, console) as shown:
            watch = Stopwatch(shown, interrupted)
            train_by(package, run, stages, watch, worker)
            trained_cpu_s = watch.elapsed_s()
            if interrupted():
                raise Interruption("stopped after the training")
        step = first_to_win(run)
    reached = None if step is None else before + step
    cpu_s = None if reached is None else watch.cpu_s[reached]
    return LearnerCost(learner, seed, source_commit(), reached, cpu_s, whole, trained_cpu_s)


def first_to_win(run: RunFolder) -> int | None:
    """Return the step of the last stage's first checkpoint that wins `WINS` of its fights, None without one."""
    stage = run.plan.stages()[-1]
    setup = StageSetup(run, stage)
    agent = replace(setup.agent, scenario=load_scenario(run.plan.scenario))
    seeds = evaluation_seeds(CURVE_SEED, FIGHTS)
    checkpoints = [*checkpoint_files(run.curve(setup.key)).items()]
    for first in range(0, len(checkpoints), _BATCH):
        some = checkpoints[first : first + _BATCH]
        learned = [load_checkpoint(path) for _, path in some]
        played = play_variants(with_variants(agent, setup.hyperparameters.observation_clip, learned), seeds, len(some))
        for (step, _), won in zip(some, played.won.reshape(len(some), FIGHTS), strict=True):
            if won.mean() >= WINS:
                return step
    return None


def summary(spent: list[LearnerCost]) -> dict[str, Any]:
    """Return one learner's medians over all seeds, None where fewer than half of them got there, and every seed."""
    return {
        "name": spent[0].learner,
        "unit": f"decisions until {WINS:.0%} of {FIGHTS} greedy fights are won",
        "seeds": [asdict(one) for one in spent],
        "reached": sum(one.decisions is not None for one in spent),
        **{key: _median([getattr(one, key) for one in spent]) for key in ("decisions", "cpu_s")},
        "trained_cpu_s": float(np.median([one.trained_cpu_s for one in spent])),
    }


def _median(values: list[float | None]) -> float | None:
    median = np.median([np.inf if value is None else value for value in values])
    return float(median) if np.isfinite(median) else None


@styled
def draw(results: list[dict[str, Any]]) -> Figure:
    """Draw every seed's decisions and CPU seconds, and medians; a cross is the end of a seed that never got there."""
    figure = Figure(figsize=(9.5, 1.2 + 0.5 * len(results)))
    panels = (("decisions", "decisions of all five skills", "linear"), ("cpu_s", "CPU seconds", "log"))
    for axes, (key, label, scale) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for place, result in enumerate(results):
            got_there = [one[key] for one in result["seeds"] if one[key] is not None]
            never = [one[f"trained_{key}"] for one in result["seeds"] if one[key] is None]
            axes.plot(got_there, [place] * len(got_there), "o", color=BLUE, mfc="none", ms=5.0)
            axes.plot(never, [place] * len(never), "x", color=GREY, ms=6.0)
            if result[key] is not None:
                axes.plot(result[key], place, "|", color=BLUE, markersize=18.0, markeredgewidth=2.6)
        names = [f"{result['name']} ({result['reached']} of {len(result['seeds'])})" for result in results]
        axes.set_yticks(range(len(results)), names)
        axes.set(xlabel=label, xscale=scale, ylim=(len(results) - 0.5, -0.5))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(5) if scale == "linear" else LogLocator(subs=(1.0, 3.0)))
    figure.suptitle(f"Until {WINS:.0%} of greedy fights are won: seeds, and the median", x=0.01, ha="left")
    return figure


def describe(result: dict[str, Any]) -> str:
    """Return one learner's result as a line."""
    got_there = f"{result['reached']} of {len(result['seeds'])} seeds got there"
    if result["decisions"] is None:
        return f"{result['name']}: {got_there}; all decisions take {result['trained_cpu_s']:,.1f} CPU seconds"
    return (
        f"{result['name']}: median {result['decisions']:,.0f} {result['unit']}, "
        f"{result['cpu_s']:,.1f} CPU seconds; {got_there}"
    )


def main() -> None:
    """Measure, print, draw."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/efficiency"), help="folder of the measurements")
    asked = parser.parse_args()
    common.report(bench_efficiency(asked.rounds, asked.out), describe, asked)
    print(f"measurements and figure in {asked.out}")


if __name__ == "__main__":
    main()
