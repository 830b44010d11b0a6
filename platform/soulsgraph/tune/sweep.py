"""Run a sweep by Ray Tune, or go on with it, and return what its trials led to, as a table over seeds."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from soulsgraph.api import know_projects, plan_of
from soulsgraph.paper.study import ADAPTED
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.plan import Plan, overrides_for
from soulsgraph.runs.progress import resumable
from soulsgraph.runs.run_folder import RunFolder, check_same
from soulsgraph.tune.folder import Scheduler, Sweep, SweepFolder, SweptAdaptation
from soulsgraph.tune.results import SweepResults, rows_of
from soulsgraph.tune.space import Search, load_space, read_space
from soulsgraph_envs.core.config import EACH_ONCE, AnyPath, Between, Where, check_arguments, validate
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.terminal import uninterrupted

_EPISODES, _OVERRIDES = "episodes", "overrides"
_FIELDS = {field.name for field in fields(Plan)}
_SPACE = Where(None, "space", "correct the value")
#: By which Ray Tune logs to no files, and prints nothing.
_QUIET = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}


@check_arguments
@resumable()
def sweep(
    space: AnyPath | Mapping[str, Any],
    *,
    seeds: Annotated[int, Between(1, 1000)] | Annotated[Sequence[int], EACH_ONCE] = 3,
    run: AnyPath = "runs/sweep",
    search: Search = "grid",
    samples: int = Sweep.samples,
    scheduler: Scheduler = "none",
    preset: str = Plan.preset,
    scenario: AnyPath = Plan.scenario,
    graph: str = Plan.graph,
    project: AnyPath | None = None,
    stage: str | None = None,
    adapt: Mapping[str, Any] | None = None,
    address: str | None = None,
    quiet: bool = False,
    **overrides: Any,
) -> SweepResults:
    """Train every setting of a space on the same seeds by Ray Tune, and return the win rates.

    The same call resumes a sweep that was interrupted, and returns one that is finished as it is.

    Args:
        space: Values of options by name, {"gamma": [0.98, 0.99], "dodge": {"lr": {"low": 1e-4, "high":
            1e-3, "log": True}}}, or a TOML file of them.
        seeds: Training seeds, or how many, counted from 200.
        run: Folder of the sweep, begun if it does not exist.
        search: grid: every combination; random: `samples` settings; optuna: as many, each by the results so far.
        samples: Settings of a random search, or of optuna's.
        scheduler: none; asha, which stops trials early that are behind; pbt, for a stage: a population of settings a
            seed, of which those behind go on from the weights, replay and optimizer of those ahead.
        preset: As of `train`, as are scenario, graph and project.
        scenario: Fight to train in and to evaluate.
        graph: Skill graph.
        project: Folder of a project with skills of one's own.
        stage: Skill to train alone, compared by its mean return.
        adapt: What trials adapt to `scenario`: run (folder or agent of the zoo), skills, and budget of each skill.
        address: Ray cluster whose nodes train trials; of a population each has to see the folder.
        quiet: Print nothing.
        overrides: Fields of `Plan`, and options of the learner that all trials have.

    Raises:
        SoulsGraphError: for what cannot be searched, before anything is begun; if a trial failed.
        Interruption: if a stop was asked for; the same call resumes.

    Example:
        soulsgraph.sweep({"gamma": [0.9, 0.99]}, scenario="vordt", adapt={"run": "iudex-phase1-best-0"}).frame
    """
    check_extra("soulsgraph.sweep", "train")
    if "seed" in overrides:
        raise SoulsGraphError("soulsgraph.sweep: expected no seed; name the trials' seeds with `seeds`.")
    know_projects(project)
    asked_plan = {"preset": preset, "scenario": str(scenario), "graph": graph, **overrides}
    plan, adaptation = (plan_of(asked_plan), None) if adapt is None else _adapting(adapt, asked_plan, overrides, run)
    skills = plan.skill_graph.order
    table = load_space(Path(space), skills) if isinstance(space, str | Path) else read_space(space, _SPACE, skills)
    listed = range(Sweep.seeds[0], Sweep.seeds[0] + seeds) if isinstance(seeds, int) else seeds
    asked = Sweep(plan, table, tuple(listed), search, samples, scheduler, stage, adaptation)
    folder = _planned_or_begun(Path(run), asked)
    return run_sweep(folder, OutputConsole(quiet=quiet), address)


def adapted_plan(adaptation: SweptAdaptation, changes: Mapping[str, Any], begun: Path | None = None) -> Plan:
    """Return the plan of the run that is adapted, with another number of episodes, or `overrides` beside its own.

    Of a sweep that is `begun` in a folder it is the plan of the copy there.

    Raises:
        SoulsGraphError: for any other field, an unknown option, or what the run cannot adapt.
    """
    copied = begun and begun / "source"
    source = RunFolder.open(copied) if copied and copied.exists() else adaptation.source
    adaptation.stages(source)
    plan = source.plan
    for name in changes:
        if name not in (_EPISODES, _OVERRIDES):
            raise SoulsGraphError(
                f"{name}: expected none with an adaptation, which goes by the plan of {adaptation.run}, found "
                f"{shown(changes[name])}; leave it out."
            )
    own = overrides_for(plan.graph, changes.get(_OVERRIDES, {}))
    return replace(plan, episodes=changes.get(_EPISODES, Plan.episodes), overrides={**plan.overrides, **own})


def _adapting(
    adapt: Mapping[str, Any], asked: Mapping[str, Any], named: Mapping[str, Any], run: str | Path
) -> tuple[Plan, SweptAdaptation]:
    """Return the plan and the adaptation of a call; raises SoulsGraphError."""
    known = {"scenario": asked["scenario"], "skills": ADAPTED, "budget": None, **adapt}
    if isinstance(known.get("run"), Path):
        known["run"] = str(known["run"])
    adaptation = validate(SweptAdaptation, known, Where(None, "adapt", "correct the value"))
    plan = plan_of(asked)
    chosen = {name for name in ("preset", "graph") if asked[name] != getattr(Plan, name)}
    given = {name: getattr(plan, name) for name in (*chosen, *named) if name in _FIELDS}
    return adapted_plan(adaptation, {**given, _OVERRIDES: plan.overrides}, Path(run)), adaptation


def _planned_or_begun(path: Path, asked: Sweep) -> SweepFolder:
    if not (path / SweepFolder.plan_file).exists():
        return SweepFolder.planned(path, asked)
    folder = SweepFolder.open(path)
    check_same(folder, asked)
    folder.check_source()
    return folder


def run_sweep(folder: SweepFolder, console: Console, address: str | None = None) -> SweepResults:
    """Train the trials that are left, write `results/`, and return the results.

    Raises:
        SoulsGraphError: if Ray cannot be used, a node does not see the folder, or a trial failed.
        Interruption: if a stop was asked for.
    """
    folder.plan.check_learns()
    # Imported here: it takes seconds.
    with uninterrupted():
        from soulsgraph.runs.workplace import joined_session
        from soulsgraph.tune.tuners import train_trials
        from soulsgraph_clusters.sessions.nodes import probed

    with joined_session(folder, console, address):
        console.print(f"sweep {folder.path}: {folder.plan.trials} trials", highlight=False, soft_wrap=True)
        with probed(folder.path), _quiet_tune():
            folder.copy_source()
            train_trials(folder, console.quiet)
            results = SweepResults(folder, rows_of(folder))
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
