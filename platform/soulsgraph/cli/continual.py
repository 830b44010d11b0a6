"""Continual learning: evaluations of methods scored, and the report of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions, one_action
from soulsgraph_envs.core.files import check_writable


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
ACTIONS: dict[str, Callable[..., None]] = {"score": score, "report": report_run}
_Action: Any = one_action("continual", ACTIONS)


def continual(action: _Action) -> None:
    """Compare continual learners over sequences of bosses: score evaluations, write the report of a run.

    Args:
        action: What to do.
    """
