"""The command that searches options of the learner by Ray Tune, a thin function over the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, RunOptions
from soulsgraph.paper.study import ADAPTED
from soulsgraph.runs.plan import Plan, check_range
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import check_given
from soulsgraph.transfer import TransferOptions
from soulsgraph.tune.folder import Sweep, SweepFolder, SweptAdaptation
from soulsgraph.tune.space import load_space
from soulsgraph_envs.core.errors import SoulsGraphError

_HINTS, _DOCS = get_type_hints(Sweep), options.field_docs(Sweep)
_SEARCHING = {
    name: options.option(_HINTS[name], _DOCS[name], getattr(Sweep, name))
    for name in ("search", "samples", "scheduler", "stage")
}
#: What every trial trains, and how it is searched for.
SweepOptions = Annotated[
    options.Given,
    options.plan_options(
        *("seed", "env_runners", "synchronous"),
        overrides=options.SET,
        seeds=options.option(int, "Training seeds of each setting, counted from the first.", len(Sweep.seeds)),
        first_seed=options.option(int, "First training seed.", Sweep.seeds[0]),
        **_SEARCHING,
    ),
]


def sweep(
    plan: SweepOptions,
    space: Annotated[Positional[Path | None], arg(metavar="SPACE.toml")] = None,
    output: RunOptions = DEFAULT_RUN,
    run: Path = Path("runs/sweep"),
    address: str | None = None,
    graph: str | None = None,
    adapt: Path | None = None,
    skills: str | None = None,
    budget: int | None = None,
) -> None:
    """Train every setting of a space of options on the same seeds by Ray Tune, and compare the win rates.

    Args:
        space: Options by name, each a list of values or {low, high, log}; those of one skill in a table of its name.
        run: Folder of the sweep, begun if it does not exist: a run folder for each trial, and results.
        address: Ray cluster whose nodes train trials, as HOST:PORT or auto; with pbt each has to see
            the folder.
        graph: Skill graph to train: paper (the default), or a project's, as PROJECT/GRAPH.
        adapt: Run folder with trained skills, or agent of the zoo, that trials adapt to the scenario, by its plan.
        skills: Skills to adapt, separated by commas; dodge,heal_attack if not given.
        budget: Steps for each skill to adapt; 40,000 times the run's scale if not given.
    """
    from soulsgraph.tune.sweep import run_sweep

    adapting = {
        name: one for name, one in (("adapt", adapt), ("skills", skills), ("budget", budget)) if one is not None
    }
    if adapting and adapt is None:
        raise SoulsGraphError(f"sweep: expected `adapt` with {', '.join(adapting)}, found none; name the run to adapt.")
    open_or_plan = _opened if (run / SweepFolder.plan_file).exists() else _planned
    folder = open_or_plan(run, space, plan, graph, adapting)
    silence_advice()
    results = run_sweep(folder, output.console, address)
    output.show(results.to_dict(), *results.to_rich())


def _planned(
    run: Path, space: Path | None, given: options.Given, graph: str | None, adapting: Mapping[str, Any]
) -> SweepFolder:
    if space is None:
        raise SoulsGraphError("sweep: expected the TOML file of a space to search, found none; name it.")
    of_sweep, of_plan = _values(given, Sweep.seeds, graph)
    if not adapting:
        plan = Plan(**of_plan)
        return SweepFolder.planned(run, Sweep(plan, load_space(space, plan.skill_graph.order), **of_sweep))
    # Imported here: it loads what trains.
    from soulsgraph.tune.sweep import adapted_plan

    usual = {"scenario": of_plan.pop("scenario", TransferOptions.scenario), "skills": ADAPTED}
    adaptation = SweptAdaptation(**usual | _adaptation(adapting))
    of_sweep["adaptation"], plan = adaptation, adapted_plan(adaptation, of_plan)
    return SweepFolder.planned(run, Sweep(plan, load_space(space, plan.skill_graph.order), **of_sweep))


def _opened(
    run: Path, space: Path | None, given: options.Given, graph: str | None, adapting: Mapping[str, Any]
) -> SweepFolder:
    folder = SweepFolder.open(run)
    of_sweep, of_plan = _values(given, folder.plan.seeds, graph, folder.plan.plan.graph)
    if adapting and "scenario" in of_plan:
        adapting = {**adapting, "scenario": of_plan.pop("scenario")}
    of_sweep |= {} if space is None else {"space": load_space(space, folder.plan.plan.skill_graph.order)}
    check_given(run, folder.plan, of_sweep)
    check_given(run, folder.plan.plan, of_plan)
    check_given(run, folder.plan.adaptation, _adaptation(adapting))
    return folder


def _adaptation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an adaptation that options given set."""
    values = dict(given)
    if "adapt" in values:
        values["run"] = values.pop("adapt").as_posix()
    if "skills" in values:
        values["skills"] = tuple(name.strip() for name in values["skills"].split(",") if name.strip())
    return values


def _values(
    given: options.Given, seeds: tuple[int, ...], graph: str | None, usual: str = Plan.graph
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a sweep, and those of its plan, that the options given set; raises SoulsGraphError.

    Options of the learner are those of the graph, of the `usual` one where none is given.
    """
    known = {one.name for one in fields(Sweep)}
    values = options.plan_values(
        {name: one for name, one in given.items() if name not in (*known, "first_seed")}, graph or usual
    )
    searching = {name: one for name, one in given.items() if name in known}
    if {"seeds", "first_seed"} & given.keys():
        count, first = given.get("seeds", len(seeds)), given.get("first_seed", seeds[0])
        check_range("seeds", count, 1, 1000)
        check_range("first-seed", first, 0, 2**31 - 1000)
        searching["seeds"] = tuple(range(first, first + count))
    return searching, values | ({} if graph is None else {"graph": graph})
