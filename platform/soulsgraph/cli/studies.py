"""Studies of many runs: the paper's, continual learning, comparison of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from soulsgraph.api import plan_values
from soulsgraph.cli.output import screen
from soulsgraph.cli.reports import write_comparison, write_continual, write_reproductions
from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.runs.plan import Plan, lasting_name
from soulsgraph.runs.run_folder import check_given
from soulsgraph.runs.study_folder import StudyFolder
from soulsgraph_envs.continual.sequences import check_tasks, held_out
from soulsgraph_envs.core.config import Between, Keywords, Where, listed, validate, with_options
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra

_ABLATED = (
    "Options of the preset to change, as an ablation does: double_q=true n_step=3; the baseline uses lanes alone."
)
_COEFFICIENTS = "Coefficients of methods to change: ewc=100 mas=3."
_SeedCount = Annotated[int, Between(1, 1000)]
#: Of a plan what is compared has in common.
_OWN = ("graph", "seed", "env_runners", "synchronous", "overrides", "learners")


def study_values(kind: type[Any], given: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a study that the options given ask for, where otherwise it would have these seeds.

    What is no field of its own is in `overrides`.

    Raises:
        DataError: for a number of seeds out of its range.
    """
    own = {one.name for one in fields(kind)} - {"seeds"}
    values = {name: given[name] for name in given.keys() & own}
    if {"seeds", "first_seed"} & given.keys():
        count, first = given.get("seeds", len(seeds)), given.get("first_seed", seeds[0])
        validate(_SeedCount, count, Where(None, "seeds", "correct the value"))
        values["seeds"] = tuple(range(first, first + count))
    others = {name: given[name] for name in given if name not in (*own, "seeds", "first_seed")}
    return values | ({"overrides": others} if others else {})


def reproduce(
    *,
    run: Path = Path("runs/reproduction"),
    address: str | None = None,
    **study: Annotated[Any, Keywords((Study,), ("overrides",), _ABLATED)],
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        run: Folder of the study, begun if it does not exist; on a cluster every node sees it under the same path.
        address: Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started.
    """
    check_extra("study reproduce", "train")
    if (run / ReproductionFolder.plan_file).exists():
        folder = ReproductionFolder.open(run)
        check_given(run, folder.plan, study_values(Study, study, folder.plan.seeds))
    else:
        folder = ReproductionFolder.planned(run, Study(**study_values(Study, study, Study.seeds)))
        folder.plan.check_learns()
    _do(folder, address)
    write_reproductions((folder.path,), out=folder.path / "report")


def _do(folder: StudyFolder[Any], address: str | None) -> None:
    """Do what is left of a study in its folder, on a cluster or this machine."""
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.runs.studies import run_study

    run_study(folder, screen.console, address)


def _continual_values(
    sequence: str | None, given: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a study that were asked for, and its coefficients; raises SoulsGraphError."""
    values = study_values(ContinualStudy, given, seeds)
    for name in {"methods", "skills"} & values.keys():
        values[name] = listed(values[name])
    if values.get("methods") == ("all",):
        values["methods"] = tuple(METHODS)
    coefficients = values.pop("overrides", {})
    return values | ({} if sequence is None else {"sequence": lasting_name(sequence)}), coefficients


def _planned_study(run: Path, sequence: str | None, given: Mapping[str, Any]) -> ContinualFolder:
    """Plan a study in a folder, all of it checked that can be checked before it is begun; raises SoulsGraphError."""
    values, coefficients = _continual_values(sequence, given, ContinualStudy.seeds)
    study = ContinualStudy(**values, options=with_options(MethodOptions(), coefficients))
    known = {name for method in study.methods for name in METHODS[method].coefficients}
    for name in (name for name in coefficients if name not in known):
        expected = f"a coefficient of {', '.join(study.methods)} ({', '.join(sorted(known)) or 'they have none'})"
        raise SoulsGraphError(f"--set {name}: expected {expected}; leave it out or correct `methods`.")
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
    check_tasks(study.tasks)
    return folder


def _opened_study(run: Path, sequence: str | None, given: Mapping[str, Any]) -> ContinualFolder:
    """Open a study to go on with it; raises SoulsGraphError where its folder is none, or what is given contradicts."""
    folder = ContinualFolder.open(run)
    values, coefficients = _continual_values(sequence, given, folder.plan.seeds)
    check_given(run, folder.plan.options, coefficients)
    check_given(run, folder.plan, values)
    return folder


def continual(
    sequence: str | None = None,
    /,
    *,
    run: Path = Path("runs/continual"),
    address: str | None = None,
    **study: Annotated[Any, Keywords((ContinualStudy,), ("sequence", "options"), _COEFFICIENTS)],
) -> None:
    """Learn a sequence of bosses by several continual methods and seeds, in parallel, and write the report.

    Args:
        sequence: Sequence of tasks, as S8, S20 or C20, or a TOML file; S8 if not given.
        run: Folder of the study, begun if it does not exist; on a cluster every node sees it under the same path.
        address: Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started.
    """
    check_extra("study continual", "train")
    begun = (run / ContinualFolder.plan_file).exists()
    folder = (_opened_study if begun else _planned_study)(run, sequence, study)
    _do(folder, address)
    write_continual((folder.path,))


def compare(
    graphs: tuple[str, ...],
    /,
    *,
    seeds: _SeedCount | None = None,
    run: Path = Path("runs/compare"),
    address: str | None = None,
    **plan: Annotated[Any, Keywords((Plan,), _OWN)],
) -> None:
    """Train agents of several skill graphs on the same seeds, in parallel, and evaluate them in the same fights.

    The same command resumes an interrupted comparison. The first graph is what the others are compared with.

    Args:
        graphs: Skill graphs, as paper and PROJECT/GRAPH.
        seeds: Training seeds of each graph, counted from 0; 5 if not given.
        run: Folder of the runs and the comparison; on a cluster every node sees it under the same path.
        address: Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started.
    """
    check_extra("study compare", "train")
    # Imported here: it takes seconds.
    from soulsgraph.project.comparing import GraphFolder, GraphStudy

    if (run / GraphFolder.plan_file).exists():
        folder = GraphFolder.open(run)
        check_given(run, folder.plan.plan, plan_values(plan))
        given = {} if seeds is None else {"seeds": tuple(range(seeds))}
        check_given(run, folder.plan, {"graphs": graphs, **given})
    else:
        folder = GraphFolder.planned(run, GraphStudy(Plan(**plan_values(plan)), graphs, tuple(range(seeds or 5))))
        folder.plan.check_learns()
    _do(folder, address)
    write_comparison((run,))
