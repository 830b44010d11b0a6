"""Studies of many runs: the paper's, continual learning, search of options, comparison of graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from soulsgraph.cli import options
from soulsgraph.cli.output import screen
from soulsgraph.cli.reports import write_continual, write_reproductions
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph.paper.study import ADAPTED, SHIFTED, ReproductionFolder, Study
from soulsgraph.results.tables import text_table
from soulsgraph.runs.plan import Plan, check_range, lasting_name
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import check_given
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.tune.folder import Sweep, SweepFolder, SweptAdaptation
from soulsgraph.tune.space import load_space
from soulsgraph_envs.continual.sequences import checked_tasks, held_out
from soulsgraph_envs.core.config import Where, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import check_extra

_FIRST_SEED = "First training seed."
_COUNTED = "Training seeds, counted from the first."
if TYPE_CHECKING:
    StudyOptions: TypeAlias = Any
    ContinualOptions: TypeAlias = Any
    SweepOptions: TypeAlias = Any
    ComparedOptions: TypeAlias = Any
else:
    #: What a new reproduction trains and evaluates.
    StudyOptions = options.given_options(
        Study,
        seeds=options.option(int, _COUNTED, len(Study.seeds)),
        first_seed=options.option(
            int,
            "First training seed; calibration, choosing and reporting each have a hundred of their own.",
            Study.seeds[0],
        ),
        overrides=options.set_option(options.field_docs(Study)["overrides"]),
    )
    #: What a new continual study learns.
    ContinualOptions = options.given_options(
        ContinualStudy,
        *("sequence", "options"),
        methods=options.option(str, "Continual methods, separated by commas, or all.", "all"),
        seeds=options.option(int, _COUNTED, len(ContinualStudy.seeds)),
        first_seed=options.option(int, _FIRST_SEED, ContinualStudy.seeds[0]),
        skills=options.option(
            str,
            "Skills that adapt to every task but the first, separated by commas, or auto: those that the rule selects, "
            "whose decisions are charged.",
            "auto",
        ),
        overrides=options.set_option("Coefficients of methods to change: ewc=100 mas=3."),
    )
    #: What every trial of a sweep trains, and how it is searched for.
    SweepOptions = options.plan_options(
        *("seed", "env_runners", "synchronous"),
        seeds=options.option(int, "Training seeds of each setting, counted from the first.", len(Sweep.seeds)),
        first_seed=options.option(int, _FIRST_SEED, Sweep.seeds[0]),
        **{
            name: options.option(get_type_hints(Sweep)[name], options.field_docs(Sweep)[name], getattr(Sweep, name))
            for name in ("search", "samples", "scheduler", "stage")
        },
    )
    #: The options of every agent's plan that is compared.
    ComparedOptions = options.plan_options("graph", "seed", "env_runners", "synchronous", "overrides")


def _seeds(given: options.Given, usual: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the seeds that the options given ask for, where otherwise they would be the usual; none if none does.

    Raises:
        SoulsGraphError: for a number of seeds, or a first one, out of its range.
    """
    if not {"seeds", "first_seed"} & given.keys():
        return {}
    count, first = given.get("seeds", len(usual)), given.get("first_seed", usual[0])
    check_range("seeds", count, 1, 1000)
    check_range("first_seed", first, 0, 2**31 - 1000)
    return {"seeds": tuple(range(first, first + count))}


def study_values(given: options.Given, seeds: Sequence[int], example: str = "double_q=true") -> dict[str, Any]:
    """Return the fields of a study that the options given ask for, where otherwise it would have these seeds.

    `example` is what the refusal of a malformed --set advises.

    Raises:
        SoulsGraphError: for a number of seeds out of its range, or an option set twice or without a value.
    """
    values = {name: value for name, value in given.items() if name != "first_seed"} | _seeds(given, seeds)
    if "overrides" in values:
        values["overrides"] = options.read_overrides(values["overrides"], example)
    return values


def reproduce(
    *,
    run: Path = Path("runs/reproduction"),
    session: options.SessionOptions = options.DEFAULT_SESSION,
    **study: StudyOptions,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        run: Folder of the study, begun if it does not exist; on a cluster it is on the head, and other nodes need not
            see it.
    """
    check_extra("study reproduce", "train")
    if (run / ReproductionFolder.plan_file).exists():
        folder = ReproductionFolder.open(run)
        check_given(run, folder.plan, study_values(study, folder.plan.seeds))
    else:
        folder = ReproductionFolder.planned(run, Study(**study_values(study, Study.seeds)))
        folder.plan.check_learns()
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.paper.seed_job import do_units

    with options.ray_session(folder, session, needed=bool(folder.left)):
        screen.console.print(f"folder {folder.path}")
        do_units(folder, screen.console)
    write_reproductions(folder.path / "report", (folder.path,))


def _continual_values(sequence: str | None, given: options.Given, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a study that were asked for, its coefficients as `overrides` by name.

    Raises:
        SoulsGraphError: for what cannot be one.
    """
    values = study_values(given, seeds, "ewc=100")
    for name in {"methods", "skills"} & values.keys():
        listed = tuple(one.strip() for one in values[name].split(",") if one.strip())
        values[name] = tuple(METHODS) if name == "methods" and listed == ("all",) else listed
    if "overrides" in values:
        values["overrides"] = {name: _coefficient(name, value) for name, value in values["overrides"].items()}
    return values | ({} if sequence is None else {"sequence": lasting_name(sequence)})


def _coefficient(name: str, value: object) -> Any:
    """Return a coefficient of a method; raises SoulsGraphError for an unknown one, and for a value out of its range."""
    hints = get_type_hints(MethodOptions, include_extras=True)
    if name not in hints:
        raise UnknownNameError("coefficient", name, hints)
    return validate(hints[name], value, Where(None, f"--set {name}", "correct the value"))


def _check_used(coefficients: Iterable[str], methods: Sequence[str]) -> None:
    """Refuse a coefficient by which none of the methods learns; raises SoulsGraphError."""
    known = dict.fromkeys(name for method in methods for name in METHODS[method].coefficients)
    for name in (name for name in coefficients if name not in known):
        expected = f"a coefficient of {', '.join(methods)} ({', '.join(known) or 'they have none'})"
        whose = ", ".join(method.name for method in METHODS.values() if name in method.coefficients)
        raise SoulsGraphError(
            f"--set {name}: expected {expected}, found one of {whose}; leave it out or correct --methods."
        )


def _planned_study(run: Path, sequence: str | None, given: options.Given) -> ContinualFolder:
    """Plan a study in a folder, all of it checked that can be checked before it is begun; raises SoulsGraphError."""
    values = _continual_values(sequence, given, ContinualStudy.seeds)
    overrides = values.pop("overrides", {})
    study = ContinualStudy(**values, options=MethodOptions(**overrides))
    _check_used(overrides, study.methods)
    folder = ContinualFolder.planned(run, study)
    study.check_learns()
    screen.precompile(training=True)  # Bosses that nobody has checked are fought by scripts.
    if study.held_out:
        if not study.tasks.family:
            raise SoulsGraphError(
                f"held_out: expected a sequence of one family, of which bosses are held out, found {study.sequence}, "
                "which names none; add `family` to its file or leave it out."
            )
        held_out(study.tasks.family, study.held_out)
    checked_tasks(study.tasks)
    return folder


def _opened_study(run: Path, sequence: str | None, given: options.Given) -> ContinualFolder:
    """Open a study to go on with it; raises SoulsGraphError where its folder is none, or what is given contradicts."""
    folder = ContinualFolder.open(run)
    values = _continual_values(sequence, given, folder.plan.seeds)
    check_given(run, folder.plan.options, values.pop("overrides", {}))
    check_given(run, folder.plan, values)
    return folder


def continual(
    sequence: str | None = None,
    /,
    *,
    run: Path = Path("runs/continual"),
    session: options.SessionOptions = options.DEFAULT_SESSION,
    **study: ContinualOptions,
) -> None:
    """Learn a sequence of bosses by several continual methods and seeds, in parallel, and write the report.

    Args:
        sequence: Sequence of tasks, as S8, S20 or C20, or a TOML file; S8 if not given.
        run: Folder of the study, begun if it does not exist; on a cluster it is on the head, and other nodes need not
            see it.
    """
    check_extra("study continual", "train")
    begun = (run / ContinualFolder.plan_file).exists()
    folder = (_opened_study if begun else _planned_study)(run, sequence, study)
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.continual.unit import run_units

    with options.ray_session(folder, session, needed=bool(folder.left)):
        screen.console.print(f"folder {folder.path}")
        run_units(folder, screen.console)
    write_continual(folder.path)


def sweep(
    space: Path | None = None,
    /,
    *,
    run: Path = Path("runs/sweep"),
    address: str | None = None,
    adapt: Path | None = None,
    skills: str | None = None,
    budget: int | None = None,
    **plan: SweepOptions,
) -> None:
    """Train every setting of a space of options on the same seeds by Ray Tune, and compare the win rates.

    Args:
        space: Options by name, each a list of values or {low, high, log}; those of one skill in a table of its name.
        run: Folder of the sweep, begun if it does not exist: a run folder for each trial, and results.
        address: Ray cluster whose nodes train trials, as HOST:PORT or auto; with pbt each has to see
            the folder.
        adapt: Run folder with trained skills, or agent of the zoo, that trials adapt to the scenario, by its plan.
        skills: Skills to adapt, separated by commas; dodge,heal_attack if not given.
        budget: Steps for each skill to adapt; 40,000 times the run's scale if not given.
    """
    check_extra("study sweep", "train")
    from soulsgraph.tune.sweep import run_sweep

    adapting = {
        name: one for name, one in (("adapt", adapt), ("skills", skills), ("budget", budget)) if one is not None
    }
    if adapting and adapt is None:
        raise SoulsGraphError(f"sweep: expected `adapt` with {', '.join(adapting)}, found none; name the run to adapt.")
    open_or_plan = _opened_sweep if (run / SweepFolder.plan_file).exists() else _planned_sweep
    folder = open_or_plan(run, space, plan, adapting)
    silence_advice()
    results = run_sweep(folder, screen.console, address)
    screen.show(results.to_dict(), *results.to_rich())


def _planned_sweep(run: Path, space: Path | None, given: options.Given, adapting: Mapping[str, Any]) -> SweepFolder:
    if space is None:
        raise SoulsGraphError("sweep: expected the TOML file of a space to search, found none; name it.")
    of_sweep, of_plan = _sweep_values(given, Sweep.seeds)
    if not adapting:
        plan = Plan(**of_plan)
        return SweepFolder.planned(run, Sweep(plan, load_space(space, plan.skill_graph.order), **of_sweep))
    # Imported here: it loads what trains.
    from soulsgraph.tune.sweep import adapted_plan

    usual = {"scenario": of_plan.pop("scenario", SHIFTED), "skills": ADAPTED}
    adaptation = SweptAdaptation(**usual | _adaptation(adapting))
    of_sweep["adaptation"], plan = adaptation, adapted_plan(adaptation, of_plan)
    return SweepFolder.planned(run, Sweep(plan, load_space(space, plan.skill_graph.order), **of_sweep))


def _opened_sweep(run: Path, space: Path | None, given: options.Given, adapting: Mapping[str, Any]) -> SweepFolder:
    folder = SweepFolder.open(run)
    of_sweep, of_plan = _sweep_values(given, folder.plan.seeds, folder.plan.plan.graph)
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
        values["skills"] = options.names_of(values["skills"])
    return values


def _sweep_values(
    given: options.Given, seeds: tuple[int, ...], graph: str = Plan.graph
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a sweep, and those of its plan, that the options given set; raises SoulsGraphError.

    Options of the learner are those of the graph, where none is given.
    """
    known = {one.name for one in fields(Sweep)}
    planned = {name: one for name, one in given.items() if name not in (*known, "first_seed")}
    searching = {name: one for name, one in given.items() if name in known} | _seeds(given, seeds)
    return searching, options.plan_values(planned, graph)


def compare(
    graphs: tuple[str, ...], /, *, seeds: int = 5, run: Path = Path("runs/compare"), **plan: ComparedOptions
) -> None:
    """Train agents of several skill graphs on the same seeds, and evaluate them in the same fights.

    The same command resumes an interrupted comparison. The first graph is what the others are compared with.

    Args:
        graphs: Skill graphs, as paper and PROJECT/GRAPH.
        seeds: Training seeds of each graph, counted from 0.
        run: Folder of the runs and the comparison.
    """
    check_extra("study compare", "train")
    check_range("seeds", seeds, 1, 1000)
    if len(set(graphs)) < 2 or len(set(graphs)) < len(graphs):
        raise SoulsGraphError(f"compare: expected two graphs or more, each once, found {', '.join(graphs) or 'none'}.")
    from soulsgraph.project.comparing import HEADINGS, Comparison
    from soulsgraph_clusters.sessions.session import connect

    silence_advice()
    comparison = Comparison(Plan(**options.plan_values(plan)), graphs, range(seeds), run)
    for _ in comparison.runs():
        pass  # What cannot be trained is refused before anything is.
    with connect("local", needed=False) as session, WorkerProcess() as worker:
        screen.precompile(training=True)
        compared = comparison.train(session, worker, screen.console, screen.display)
    screen.show(compared.to_dict(), text_table("", HEADINGS, compared.rows), f"comparison in {run}")
