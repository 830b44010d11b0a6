"""One trial of a sweep, as Ray Tune runs it in its own process, and the line that is shown when it has ended.

A trial is a curriculum of one setting and seed, evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from rich.console import Console

from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.lineage import own_stages
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph.tracking.board import USUAL
from soulsgraph.tracking.contract import LogPoint, TrackedRun, Tracker
from soulsgraph.tune.folder import SweepFolder
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_policies.agents.projects import LoadedProject, take_over

#: Names in a trial's configuration and reports.
OPTIONS, SEED, WIN_RATE, STEP, WINS, EPISODES = "options", "seed", "win_rate", "step", "wins", "episodes"
_LOGGED = "eval/win_rate"
#: Seed of the fights by which settings are compared: results are reported on others.
CHOICE_SEED = evaluating.EVALUATION_SEED + 1

Config = Mapping[str, Any]


class TuneTracker(Tracker):
    """Report the win rate of each checkpoint of one skill, the last, to Ray Tune, which may stop the trial by it."""

    # At once, in the trial's own thread: Tune stops a trial where it reports.
    local: ClassVar[bool] = True

    def __init__(self, skill: str) -> None:
        self._skill = skill

    def begin(self, run: TrackedRun) -> None:
        """There is nothing to begin."""

    def scalars(self, at: LogPoint, values: Mapping[str, float]) -> None:
        """Report a checkpoint of the skill, by its decisions."""
        if at.group == self._skill and _LOGGED in values:
            tune.report({WIN_RATE: values[_LOGGED], STEP: at.step})

    def end(self, finished: bool) -> None:
        """There is nothing to end."""


class TrialLines(tune.Callback):
    """Print a line for each trial that ends; Ray Tune keeps it beside its own state, so that it holds plain values."""

    def __init__(self, trials: int, quiet: bool) -> None:
        self._trials, self._quiet, self._ended = trials, quiet, 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print its setting, seed and last win rate."""
        rate = (trial.last_result or {}).get(WIN_RATE)
        self._print(trial, "no win rate" if rate is None else f"win rate {100.0 * rate:.1f} %")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that it failed; why is in the error at the end."""
        self._print(trial, "failed")

    def _print(self, trial: Any, ended: str) -> None:
        self._ended += 1
        setting = ", ".join(f"{name}={value}" for name, value in trial.config[OPTIONS].items())
        line = f"{self._ended}/{self._trials}: {setting}, seed {trial.config[SEED]}: {ended}"
        OutputConsole(quiet=self._quiet).print(line, highlight=False, soft_wrap=True)


def trainable(folder: SweepFolder, projects: tuple[LoadedProject, ...]) -> Callable[[Config], None]:
    """Return what Ray Tune calls with the configuration of each trial, on any node that sees the folder."""
    path = folder.path.absolute()

    def trial(config: Config) -> None:
        take_over(projects)
        run_trial(path, config)

    return trial


def run_trial(path: Path, config: Config) -> None:
    """Train a trial's run, or go on with it, and report the win rate of the whole agent at the end.

    Raises:
        SoulsGraphError: if its run cannot be trained, or another process writes it.
    """
    folder = SweepFolder.open(path)
    run = folder.run(config[OPTIONS], config[SEED])
    last = run.plan.stages()[-1]
    trackers = (USUAL, TuneTracker(last.skill))
    with run.locked(), Workplace(run, Session(local=False), "silent", trackers=trackers) as place:
        train_stages(place, own_stages(run), Console(quiet=True))
    tune.report(_evaluated(run) | {STEP: last.budget})


def _evaluated(run: RunFolder) -> dict[str, float]:
    scenario = run.plan.scenario
    setting = evaluating.Setting(scenario, scenario)
    rate = evaluating.evaluate(run, setting, run.plan.episodes, CHOICE_SEED).win_rate
    return {WIN_RATE: rate.rate, WINS: rate.wins, EPISODES: rate.episodes}
