"""Continual learning: methods run over a sequence, bosses checked, evaluations scored, and the report of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions, one_action
from soulsgraph.cli.studies import study_values
from soulsgraph.continual.files import EVALUATIONS, read_folder
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph.results.tables import cells_table
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.run_folder import check_given
from soulsgraph_envs.continual.boss_filter import check_boss
from soulsgraph_envs.continual.sequences import checked_tasks, held_out, load_sequence, sequence_names
from soulsgraph_envs.core.config import Where, is_generated, read_file, shipped_names, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_scenario

#: The options of a study: what a new one trains and evaluates.
ContinualOptions = Annotated[
    options.Given,
    options.given_options(
        ContinualStudy,
        ("sequence", "options"),
        methods=options.option(str, "Continual methods, separated by commas, or all.", "all"),
        seeds=options.option(int, "Training seeds, counted from the first.", len(ContinualStudy.seeds)),
        first_seed=options.option(int, "First training seed.", ContinualStudy.seeds[0]),
        skills=options.option(
            str,
            "Skills that adapt to every task but the first, separated by commas, or auto: those that the rule selects, "
            "whose decisions are charged.",
            "auto",
        ),
        overrides=options.option(
            tuple[str, ...], "Coefficients of methods to change: ewc=100 mas=3.", name="set", metavar="NAME=VALUE ..."
        ),
    ),
]


def _study_values(sequence: str | None, given: options.Given, seeds: tuple[int, ...]) -> dict[str, Any]:
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


def _planned(run: Path, sequence: str | None, given: options.Given, output: OutputOptions) -> ContinualFolder:
    """Plan a study in a folder, all of it checked that can be checked before it is begun; raises SoulsGraphError."""
    values = _study_values(sequence, given, ContinualStudy.seeds)
    overrides = values.pop("overrides", {})
    study = ContinualStudy(**values, options=MethodOptions(**overrides))
    _check_used(overrides, study.methods)
    folder = ContinualFolder.planned(run, study)
    study.check_learns()
    output.precompile(training=True)  # Bosses that nobody has checked are fought by scripts.
    if study.held_out:
        if not study.tasks.family:
            raise SoulsGraphError(
                f"--held-out: expected a sequence of one family, of which bosses are held out, found {study.sequence}, "
                "which names none; add `family` to its file or leave --held-out out."
            )
        held_out(study.tasks.family, study.held_out)
    checked_tasks(study.tasks)
    return folder


def _opened(run: Path, sequence: str | None, given: options.Given) -> ContinualFolder:
    """Open a study to go on with it; raises SoulsGraphError where its folder is none, or what is given contradicts."""
    folder = ContinualFolder.open(run)
    values = _study_values(sequence, given, folder.plan.seeds)
    check_given(run, folder.plan.options, values.pop("overrides", {}))
    check_given(run, folder.plan, values)
    return folder


def run_study(
    study: ContinualOptions,
    sequence: Annotated[Positional[str | None], arg(metavar="SEQUENCE")] = None,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/continual"),
) -> None:
    """Learn a sequence of bosses by several continual methods and seeds, in parallel, and write the report.

    Args:
        sequence: Sequence of tasks, as S8, S20 or C20, or a TOML file; S8 if not given.
        run: Folder of the study, begun if it does not exist; on a cluster it is on the head, and other nodes need not
            see it.
    """
    if session.games or session.fleet or session.gateways != 1 or session.no_ray:
        found = "found --games, --fleet, --gateways or --no-ray"
        raise SoulsGraphError(f"continual run: expected the simulator alone, {found}; leave them out.")
    begun = (run / ContinualFolder.plan_file).exists()
    folder = _opened(run, sequence, study) if begun else _planned(run, sequence, study, session)
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.continual.unit import run_units

    with options.ray_session(folder, session, needed=bool(folder.left)) as joined:
        if folder.left:
            joined.check_nodes()
        session.console.print(f"folder {folder.path}")
        run_units(folder, session.console)
    _write_report(folder.path, session)


def bosses(
    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME ...")], output: OutputOptions = DEFAULT_OUTPUT
) -> None:
    """Check bosses and sequences by the filter: the win rates of a script that sees ahead, of random play, and of the
    script without dodging. Exit 1 if one fails.

    Args:
        names: Sequences as S8, scenarios as generated/timing/10001, or TOML files of either.
    """
    if not names:
        raise SoulsGraphError("continual bosses: expected one or more sequences or scenarios, found none; name one.")
    scenarios = dict.fromkeys(scenario for name in names for scenario in _scenarios(name))
    output.precompile()
    results = {scenario: check_boss(scenario) for scenario in scenarios}
    cells = [
        {
            "scenario": scenario,
            **{way: _percent(getattr(result, way)) for way in ("oracle", "random", "undodged")},
            "passed": "yes" if result.passed else f"no: {result.reason}",
        }
        for scenario, result in results.items()
    ]
    rows = [{"scenario": scenario, **vars(result)} for scenario, result in results.items()]
    passed = all(result.passed for result in results.values())
    output.show(rows, cells_table("Bosses by the filter", cells), passed=passed)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100.0 * share:.0f} %"


def _scenarios(name: str) -> tuple[str, ...]:
    """Return the scenarios of a sequence, or a scenario itself; raises SoulsGraphError for what is neither."""
    known, path = sequence_names(), Path(name)
    if name in known or (name.endswith(".toml") and "tasks" in read_file(Where(path))):
        return load_sequence(name).scenarios
    if not name.endswith(".toml") and not is_generated(name) and name not in (fights := shipped_names("scenario")):
        raise UnknownNameError("sequence or scenario", name, (*known, *fights))
    load_scenario(name)
    return (name,)


def score(
    file: Annotated[Positional[Path], arg(metavar="FILE.parquet")],
    output: OutputOptions = DEFAULT_OUTPUT,
    against: Annotated[str | None, arg(metavar="METHOD")] = None,
    out: Path | None = None,
) -> None:
    """Score evaluations of continual learners, ours or anyone's: performance, forgetting and transfer with intervals.

    A row of the file is a task that was played at a moment of training, with the columns method, seed, after (tasks
    finished), decisions (spent in the task that is trained, 0 between tasks), task (its position from 1), wins and
    episodes; ticks and task_name are optional. The method named scratch is the reference of forward transfer.

    Args:
        file: Parquet file of evaluations.
        against: Method that the others are compared with; kept, or else the best, if not given.
        out: Folder for the scores as JSON and Parquet.
    """
    # Imported here: its statistics are scipy's, which a help text need not wait for.
    from soulsgraph.continual.scoring import score_file

    if out is not None:
        check_writable(out)
    scores = score_file(file, against)
    output.show(scores.to_dict(), *scores.to_rich())
    if out is not None:
        scores.save(out)
        output.console.print(f"results in {out}")


def report_run(
    folder: Annotated[Positional[Path], arg(metavar="DIR")],
    output: OutputOptions = DEFAULT_OUTPUT,
    against: Annotated[str | None, arg(metavar="METHOD")] = None,
    out: Path | None = None,
) -> None:
    """Write the report of a run: scores, what each skill forgot, plasticity and costs, with figures.

    It is written as Markdown, as one HTML page that needs no network, and as JSON and Parquet.

    Args:
        folder: Run folder; its evaluations are in results/evaluations.parquet, other tables beside them.
        against: Method that the others are compared with; kept, or else the best, if not given.
        out: Folder of the report; `report` in the run folder if not given.
    """
    _write_report(folder, output, out, against)


def _write_report(folder: Path, output: OutputOptions, out: Path | None = None, against: str | None = None) -> None:
    """Write the report of a run, and print its scores."""
    # Imported here, as above: matplotlib takes a moment that a help text need not wait.
    from soulsgraph.continual.report import PAGE, write_continual_report
    from soulsgraph.continual.scoring import score as score_results

    report = write_continual_report(folder, out, against)
    scores, page = score_results(read_folder(folder)[EVALUATIONS], against), report.with_name(PAGE)
    plain = {"folder": str(folder), "report": str(report), "page": str(page), "scores": scores.to_dict()}
    output.show(plain, *scores.to_rich(), f"report in {report}, as a page in {page}")


#: The actions, in the order of the help.
ACTIONS: dict[str, Callable[..., None]] = {"run": run_study, "report": report_run, "score": score, "bosses": bosses}
_Action: Any = one_action("continual", ACTIONS)


def continual(action: _Action) -> None:
    """Compare continual learners over sequences of bosses: run methods, score evaluations, write the report.

    Args:
        action: What to do.
    """
