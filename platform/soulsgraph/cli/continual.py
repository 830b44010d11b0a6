"""Continual learning: methods run over a sequence, bosses checked, evaluations scored, and the report of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_OUTPUT, Flag, OutputOptions, one_action
from soulsgraph.cli.remedies import in_commands
from soulsgraph.cli.studies import study_values
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph.results.tables import cells_table
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.run_folder import check_given
from soulsgraph_envs.continual.boss_filter import check_boss
from soulsgraph_envs.continual.sequences import checked_tasks, load_sequence, sequence_names
from soulsgraph_envs.core.config import Where, read_table, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import check_writable

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
    """Return the fields of a study that were asked for; raises SoulsGraphError for what cannot be one."""
    values = study_values(given, seeds)
    for name, whole in (("methods", tuple(METHODS)), ("skills", ("auto",))):
        if name in values:
            listed = tuple(one.strip() for one in values[name].split(",") if one.strip())
            values[name] = whole if listed == ("all",) and name == "methods" else listed
    if "overrides" in values:
        where = Where(None, "--set", "correct the value")
        known = to_table(MethodOptions())
        for name in values["overrides"]:
            if name not in known:
                raise UnknownNameError("coefficient", name, known)
        values["options"] = read_table(MethodOptions, {**known, **values.pop("overrides")}, where)
    return values | ({} if sequence is None else {"sequence": lasting_name(sequence)})


def run(
    study: ContinualOptions,
    sequence: Annotated[Positional[str | None], arg(metavar="SEQUENCE")] = None,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    out: Path = Path("runs/continual"),
    resume: Flag = False,
) -> None:
    """Learn a sequence of bosses by several continual methods and seeds, each a task of its own, and write the report.

    Args:
        sequence: Sequence of tasks, as S8, S20 or C20, or a TOML file; S8 if not given.
        out: Folder to begin, or to go on with; on a cluster it lies on the head, and other nodes need not see it.
        resume: Go on with the study in the folder instead of beginning one.
    """
    if session.games or session.fleet or session.gateways != 1 or session.no_ray:
        found = "found --games, --fleet, --gateways or --no-ray"
        raise SoulsGraphError(f"continual run: expected the simulator alone, {found}; leave them out.")
    if resume:
        folder = ContinualFolder.open(out)
        check_given(out, folder.plan, _study_values(sequence, study, folder.plan.seeds), "begin another folder")
    else:
        folder = ContinualFolder.planned(out, ContinualStudy(**_study_values(sequence, study, ContinualStudy.seeds)))
        folder.plan.check_learns()
        checked_tasks(folder.plan.tasks)
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.continual.report import PAGE, write_continual_report
    from soulsgraph.continual.unit import run_units

    with options.ray_session(folder, session, needed=bool(folder.left)) as joined:
        if folder.left:
            joined.check_nodes()
        session.console.print(f"folder {folder.path}")
        run_units(folder, session.console, partial(in_commands, command="continual"))
    report = write_continual_report(folder.path, None, None)
    page = report.with_name(PAGE)
    session.show({"folder": str(folder.path), "report": str(report), "page": str(page)}, f"report in {report}")


def bosses(
    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME ...")], output: OutputOptions = DEFAULT_OUTPUT
) -> None:
    """Play the filter of bosses and sequences: the win rates of scripted play that sees ahead, of random play, and of
    the first without ever dodging.

    Args:
        names: Sequences, or scenarios as generated/timing/10001.
    """
    known, rows = sequence_names(), []
    for name in names:
        scenarios = load_sequence(name).scenarios if name in known else (name,)
        rows += [{"scenario": scenario, **vars(check_boss(scenario))} for scenario in dict.fromkeys(scenarios)]
    cells = [{key: str(value) for key, value in row.items()} for row in rows]
    output.show(rows, cells_table("Bosses by the filter", cells))


def score(
    file: Annotated[Positional[Path], arg(metavar="FILE.parquet")],
    output: OutputOptions = DEFAULT_OUTPUT,
    against: Annotated[str | None, arg(metavar="METHOD")] = None,
    out: Path | None = None,
) -> None:
    """Score evaluations of continual learners, ours or anyone's: performance, forgetting and transfer with intervals.

    A row of the file is a task that was played at a moment of training, with the columns method, seed, after (tasks
    finished), decisions (spent in the task that is trained, 0 between tasks), task (its position from 1), wins and
    episodes; ticks and task_name are optional. The method named scratch is what forward transfer is measured from.

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
    from soulsgraph.continual.report import PAGE, write_continual_report

    report = write_continual_report(folder, out, against)
    page = report.with_name(PAGE)
    output.show({"report": str(report), "page": str(page)}, f"report in {report}, as a page in {page}")


#: The actions, in the order of the help.
ACTIONS: dict[str, Callable[..., None]] = {"run": run, "report": report_run, "score": score, "bosses": bosses}
_Action: Any = one_action("continual", ACTIONS)


def continual(action: _Action) -> None:
    """Compare continual learners over sequences of bosses: run methods, score evaluations, write the report.

    Args:
        action: What to do.
    """
