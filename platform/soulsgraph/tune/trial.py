"""One trial of a sweep: a curriculum, a stage or an adaptation by one setting and seed, evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from soulsgraph.results.statistics import mean_interval
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.progress import Supervisor
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.study_folder import Tables
from soulsgraph.runs.train import StageSetup, train_unit
from soulsgraph.tracking.contract import Tracker
from soulsgraph.tune.folder import EPISODES, FINISHED, NODE, RETURN, STEP, TRIALS, WIN_RATE, WINS, Sweep, SweepFolder
from soulsgraph_policies.agents.agent import Agent

#: Seed of the fights by which settings are compared: results are reported on others.
CHOICE_SEED = evaluating.EVALUATION_SEED + 1


def do_trial(folder: SweepFolder, setting: Mapping[str, Any], seed: int, supervisor: Supervisor) -> Tables:
    """Train a trial that is known before, and return its row; raises as `train_trial`."""
    run = folder.run(folder.run_path(setting, seed), setting, seed)
    return {TRIALS: [folder.row(setting, seed, FINISHED, train_trial(folder, run, supervisor))]}


def train_trial(
    folder: SweepFolder, run: RunFolder, supervisor: Supervisor | None = None, trackers: tuple[Tracker, ...] = ()
) -> dict[str, Any]:
    """Train a trial's run, or go on with it, and return how what it trained plays at the end.

    Raises:
        SoulsGraphError: if its run cannot be trained, or another process writes it.
    """
    stages = folder.plan.stages(run)
    with run.locked():
        train_unit(run, stages, supervisor, trackers=trackers)
    return {**evaluated(run, folder.plan), STEP: stages[-1].steps, NODE: this_node()}


def this_node() -> str:
    """Return the first digits of the id of the node that this process is on; nothing without Ray."""
    return str(ray.get_runtime_context().get_node_id()[:8]) if ray.is_initialized() else ""


def evaluated(run: RunFolder, sweep: Sweep) -> dict[str, float]:
    """Return how the agent plays, or where one skill is trained that skill on top of those upstream."""
    episodes, seeds = sweep.plan.episodes, evaluating.evaluation_seeds(CHOICE_SEED, sweep.plan.episodes)
    if sweep.stage is None:
        results = evaluating.evaluate(run, evaluating.Setting(sweep.scenario, sweep.scenario), episodes, CHOICE_SEED)
        rate, returns = results.wins, results.episodes.returns
        counts = {WINS: rate.wins, EPISODES: rate.episodes, **rate.interval.columns()}
        return {WIN_RATE: rate.rate, RETURN: float(returns.mean()), **counts}
    setup = StageSetup(run, sweep.stages(run)[-1])
    networks = evaluating.load_networks(run, setup.stage.scenario, setup.skills, setup.scenario)
    returns = evaluating.play(Agent(setup.scenario, setup.skills, networks), seeds).returns
    return {RETURN: float(returns.mean()), EPISODES: episodes, **mean_interval(returns).columns()}
