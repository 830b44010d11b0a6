"""Run a sweep by Ray Tune, or go on with it, and return what its trials led to, as a table over seeds."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from soulsgraph.api import OPTIONS, know_projects, plan_values
from soulsgraph.paper.study import ADAPTED, SHIFTED
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.lineage import frozen_versions
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import resumable, silence_advice
from soulsgraph.runs.run_folder import check_given
from soulsgraph.tune.folder import Sweep, SweepFolder, SweptRun
from soulsgraph.tune.results import SweepResults, rows_of
from soulsgraph.tune.space import SearchSpace, load_space, read_space
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.config import EACH_ONCE, AnyPath, Between, Keywords, Where, check_arguments, listed
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.terminal import uninterrupted

_EPISODES, _OVERRIDES = "episodes", "overrides"
_SPACE = Where(None, "space", "correct the value")
#: Fields of a sweep that are keywords by their own names.
_SEARCHING = ("search", "samples", "scheduler", "stage")
#: What of a plan and of a sweep is no keyword by its own name.
_LEFT_OUT = ("seed", "env_runners", "synchronous", "learners", "overrides", "plan", "space", "seeds", "source")
#: By which Ray Tune logs to no files, and prints nothing.
_QUIET = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}


@check_arguments
@resumable()
def sweep(
    space: AnyPath | Mapping[str, Any] | None = None,
    *,
    seeds: Annotated[int, Between(1, 1000)] | Annotated[Sequence[int], EACH_ONCE] | None = None,
    run: AnyPath = "runs/sweep",
    adapt: AnyPath | None = None,
    skills: str | Annotated[Sequence[str], EACH_ONCE] | None = None,
    budget: Annotated[int, Between(1, 100_000_000)] | None = None,
    project: AnyPath | None = None,
    address: str | None = None,
    quiet: bool = False,
    **options: Annotated[Any, Keywords((Plan, Sweep), _LEFT_OUT, OPTIONS)],
) -> SweepResults:
    """Train every setting of a space of options on the same seeds by Ray Tune, and compare the win rates.

    The same call resumes a sweep that was interrupted, and returns one that is finished as it is.

    Args:
        space: TOML file of options by name, each a list of values or {low, high, log}; those of one skill in a table of
            its name. From Python also such a mapping: {"gamma": [0.98, 0.99], "dodge": {"lr": {"low": 1e-4, "high":
            1e-3, "log": True}}}.
        seeds: Training seeds of each setting, counted from 200, 3 if not given; from Python also a list of them.
        run: Folder of the sweep, begun if it does not exist: a run folder for each trial, and results.
        adapt: Run folder with trained skills, or agent of the zoo, that trials adapt to the scenario, by its plan; with
            `stage` they train that skill of it anew.
        skills: Skills to adapt; dodge and heal_attack if not given.
        budget: Decisions for each skill; of an adaptation 40,000 times the run's scale if not given.
        project: Folder of a project with skills of your own; not needed for installed projects.
        address: Ray cluster whose nodes train trials, as HOST:PORT or auto; with pbt each has to see the folder.
        quiet: Print nothing.
        options: Fields of `Sweep` (search, samples, scheduler, stage), and of `Plan` and options of the learner that
            all trials have, as of `train`.

    Raises:
        SoulsGraphError: for what cannot be searched, before anything is begun; if a trial failed.
        Interruption: if a stop was asked for; the same call resumes.

    Example:
        soulsgraph.sweep({"gamma": [0.9, 0.99]}, scenario="vordt", adapt="iudex-phase1-best-0").frame
    """
    check_extra("study sweep", "train")
    if "seed" in options:
        raise SoulsGraphError("study sweep: expected no seed; name the trials' seeds with `seeds`.")
    know_projects(project)
    named: dict[str, Any] = {"run": None if adapt is None else Path(adapt).as_posix(), "budget": budget}
    named["skills"] = None if skills is None else listed(skills)
    adapting = {name: value for name, value in named.items() if value is not None}
    if adapting and adapt is None:
        raise SoulsGraphError(f"sweep: expected `adapt` with {', '.join(adapting)}, found none; name the run to adapt.")
    searching = {name: options.pop(name) for name in _SEARCHING if name in options}
    if seeds is not None:
        first = Sweep.seeds[0]
        searching["seeds"] = tuple(range(first, first + seeds) if isinstance(seeds, int) else seeds)
    begun = (Path(run) / SweepFolder.plan_file).exists()
    folder = (opened_sweep if begun else _planned_sweep)(Path(run), space, searching, options, adapting)
    silence_advice()
    return run_sweep(folder, OutputConsole(quiet=quiet), address)


_Given = Mapping[str, Any]


def _planned_sweep(
    path: Path, space: AnyPath | _Given | None, searching: _Given, planned: _Given, adapting: _Given
) -> SweepFolder:
    if space is None:
        raise SoulsGraphError("sweep: expected the TOML file of a space to search, found none; name it.")
    values, source, stage = plan_values(planned), None, searching.get("stage")
    if adapting and stage is None:
        source = SweptRun(**{"scenario": values.pop("scenario", SHIFTED), "skills": ADAPTED} | dict(adapting))
    elif adapting:
        home = open_run(Path(adapting["run"])).plan.scenario
        source = SweptRun(**{"scenario": home, "skills": (stage,)} | dict(adapting))
    plan = Plan(**values) if source is None else adapted_plan(source, values)
    asked = Sweep(plan, _space(space, plan), **searching, source=source)
    if source is not None:
        for one in asked.stages(source.folder):
            frozen_versions(source.folder, one)
    return SweepFolder.planned(path, asked)


def opened_sweep(
    path: Path, space: AnyPath | _Given | None, searching: _Given, planned: _Given, adapting: _Given
) -> SweepFolder:
    """Open a sweep to go on with it; raises SoulsGraphError where what is given contradicts it."""
    folder = SweepFolder.open(path)
    begun, values = folder.plan, plan_values(planned, folder.plan.plan.graph)
    if adapting and "scenario" in values:
        adapting = {**adapting, "scenario": values.pop("scenario")}
    check_given(path, begun, {**searching, **({} if space is None else {"space": _space(space, begun.plan)})})
    check_given(path, begun.plan, values)
    check_given(path, begun.source, adapting)
    return folder


def _space(space: AnyPath | _Given, plan: Plan) -> SearchSpace:
    skills = plan.skill_graph.order
    return load_space(Path(space), skills) if isinstance(space, str | Path) else read_space(space, _SPACE, skills)


def adapted_plan(source: SweptRun, changes: Mapping[str, Any]) -> Plan:
    """Return the plan of the run that trials begin with, with other episodes, or `overrides` beside its own.

    Raises:
        SoulsGraphError: for any other field, or an unknown option.
    """
    plan = source.folder.plan
    for name in changes:
        if name not in (_EPISODES, _OVERRIDES):
            raise SoulsGraphError(
                f"{name}: expected none with an adaptation, which goes by the plan of {source.run}, found "
                f"{shown(changes[name])}; leave it out."
            )
    overrides = {**plan.overrides, **changes.get(_OVERRIDES, {})}
    return replace(plan, episodes=changes.get(_EPISODES, Plan.episodes), overrides=overrides)


def run_sweep(folder: SweepFolder, console: Console, address: str | None = None) -> SweepResults:
    """Train the trials that are left, write `results/`, and return the results.

    Raises:
        SoulsGraphError: if Ray cannot be used, a node does not see the folder, or a trial failed.
        Interruption: if a stop was asked for.
    """
    folder.plan.check_learns()
    # Imported here: it takes seconds.
    with uninterrupted():
        from soulsgraph.runs.studies import run_study
        from soulsgraph.runs.workplace import joined_session
        from soulsgraph_clusters.sessions.nodes import probed

    if folder.plan.searched:
        with joined_session(folder, console, address), probed(folder.path), _quiet_tune():
            from soulsgraph.tune.tuners import train_trials

            console.print(f"sweep {folder.path}: {folder.plan.trials} trials")
            folder.prepare()
            train_trials(folder, console.quiet)
            rows = rows_of(folder)
    else:
        run_study(folder, console, address)
        rows = rows_of(folder)
    results = SweepResults(folder, rows)
    results.save()
    results.check()
    return results


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Keep Ray Tune from files and lines of its own: what failed is reported once, by its cause."""
    logger = logging.getLogger("ray.tune")
    before, level = {name: os.environ.get(name) for name in _QUIET}, logger.level
    os.environ.update(_QUIET)
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # Optuna's, of lists among values: what it keeps in memory may be any.
            warnings.filterwarnings("ignore", message=".*for persistent storage", category=UserWarning)
            yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
