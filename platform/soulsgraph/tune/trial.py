"""One trial of a sweep, as Ray Tune runs it in its own process, and the line that is shown when it has ended.

A trial is a curriculum, a stage or an adaptation by one setting and seed, evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import ray
from ray import tune
from ray.tune.search.repeater import TRIAL_INDEX
from rich.console import Console

from soulsgraph.results.statistics import mean_interval
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, Workplace, train_stages
from soulsgraph.tracking.board import USUAL
from soulsgraph.tracking.contract import Logged, LogPoint, TrackedRun, Tracker
from soulsgraph.tune.folder import RETURN, WIN_RATE, Sweep, SweepFolder
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.files import FileLock, make_folder
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.projects import LoadedProject, take_over

#: Names in a trial's configuration and reports. Tune varies what comes first in the alphabet fastest: seeds, for trials
#: of one seed may wait for the stages that they share.
OPTIONS, SEED, STEP, WINS, EPISODES, LOW, HIGH = "setting", "seed", "step", "wins", "episodes", "low", "high"
NODE = "node"
#: Of a member of a population: its mean return while it learns, in other fights than those that it is reported on.
TRAINING_RETURN = "training_return"
_LOGGED = {WIN_RATE: "eval/win_rate", RETURN: "eval/episodic_return"}
#: Seed of the fights by which settings are compared: results are reported on others.
CHOICE_SEED = evaluating.EVALUATION_SEED + 1

Config = Mapping[str, Any]


class TuneTracker(Tracker):
    """Report the figure of each checkpoint of one skill, the last, to Ray Tune, which may stop the trial by it."""

    # At once, in the trial's own thread: Tune stops a trial where it reports.
    local: ClassVar[bool] = True

    def __init__(self, skill: str, metric: str, before: int = 0) -> None:
        self._skill, self._metric, self._before = skill, metric, before

    def begin(self, run: TrackedRun) -> None:
        """There is nothing to begin."""

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Report a checkpoint of the skill, by the decisions of the stage."""
        if at.group == self._skill and (name := _LOGGED[self._metric]) in values:
            tune.report({self._metric: values[name], STEP: at.step - self._before})

    def end(self, finished: bool) -> None:
        """There is nothing to end."""


class TrialLines(tune.Callback):
    """Print a line for each trial that ends; Ray Tune keeps it beside its own state, so that it holds plain values."""

    def __init__(self, trials: int, seeds: Sequence[int], quiet: bool) -> None:
        self._trials, self._seeds, self._quiet, self._ended = trials, tuple(seeds), quiet, 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print its setting, seed and last figure."""
        self._show(trial.config, trial.last_result or {}, "no result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that it failed; why is in the error at the end."""
        self._show(trial.config, {}, "failed")

    def _show(self, config: Config, figures: Mapping[str, Any], without: str) -> None:
        self._ended += 1
        values = [f"win rate {100.0 * figures[WIN_RATE]:.1f} %"] if WIN_RATE in figures else []
        values += [f"return {figures[RETURN]:.2f}"] if RETURN in figures else []
        options = ", ".join(f"{name}={value}" for name, value in config[OPTIONS].items())
        line = f"{self._ended}/{self._trials}: {options}, seed {seed_of(config, self._seeds)}: "
        OutputConsole(quiet=self._quiet).print(line + (", ".join(values) or without), highlight=False, soft_wrap=True)


def trainable(folder: SweepFolder, projects: tuple[LoadedProject, ...]) -> Callable[[Config], None]:
    """Return what Ray Tune calls with the configuration of each trial, on any node, which sees the folder."""
    folder = SweepFolder(folder.path.absolute(), folder.plan)

    def trial(config: Config) -> None:
        take_over(projects)
        setting, seed = config[OPTIONS], seed_of(config, folder.plan.seeds)
        path = folder.run_path(setting, seed, tune.get_context().get_trial_id())
        make_folder(path.parent)
        # One trial of a run at a time: a setting may be drawn twice.
        with FileLock(path.with_suffix(".lock"), wait=True):
            result = train_trial(folder, folder.run(path, setting, seed))
        tune.report({**result, NODE: this_node()})

    return trial


def seed_of(config: Config, seeds: Sequence[int]) -> int:
    """Return a trial's training seed: its own, or where Tune repeats a setting that of the repetition."""
    return int(config[SEED] if SEED in config else seeds[config[TRIAL_INDEX]])


def train_trial(folder: SweepFolder, run: RunFolder) -> dict[str, float]:
    """Train a trial's run, or go on with it, and return how what it trained plays at the end.

    Raises:
        SoulsGraphError: if its run cannot be trained, or another process writes it.
    """
    sweep = folder.plan
    stages = sweep.stages(run)
    last = stages[-1]
    continued = [] if last.parent is None else run.library.lineage(last.skill, last.parent)
    tracker = TuneTracker(last.skill, sweep.metric, sum(card.training.steps for card in continued))
    with run.locked(), Workplace(run, Session(local=False), "silent", trackers=(USUAL, tracker)) as place:
        train_stages(place, stages, Console(quiet=True))
    return {**evaluated(run, sweep), STEP: last.steps}


def this_node() -> str:
    """Return the first digits of the id of the node that this process is on."""
    return str(ray.get_runtime_context().get_node_id()[:8])


def evaluated(run: RunFolder, sweep: Sweep) -> dict[str, float]:
    """Return how the agent plays, or where one skill is trained that skill on top of those upstream."""
    episodes, seeds = sweep.plan.episodes, evaluating.evaluation_seeds(CHOICE_SEED, sweep.plan.episodes)
    if sweep.stage is None:
        evaluation = evaluating.evaluate(run, evaluating.Setting(sweep.scenario, sweep.scenario), episodes, CHOICE_SEED)
        rate, returns = evaluation.win_rate, evaluation.episodes.returns
        counts = {WINS: rate.wins, EPISODES: rate.episodes, **rate.interval.columns()}
        return {WIN_RATE: rate.rate, RETURN: float(returns.mean()), **counts}
    setup = StageSetup(run, sweep.stages(run)[-1])
    networks = evaluating.load_networks(run, setup.stage.scenario, setup.skills, setup.scenario)
    returns = evaluating.play(Agent(setup.scenario, setup.skills, networks), seeds).returns
    return {RETURN: float(returns.mean()), EPISODES: episodes, **mean_interval(returns).columns()}
