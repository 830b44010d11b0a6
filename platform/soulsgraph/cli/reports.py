"""`report` and `check`: what is in a folder or a file is found, and told or tried again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from soulsgraph.api import Run
from soulsgraph.cli.options import taken
from soulsgraph.cli.output import screen
from soulsgraph.results.tables import finite, readable_table, text_table
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.plan import Plan, lasting_name
from soulsgraph.runs.progress import silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import agent_names, is_agent, open_agent, open_run
from soulsgraph.zoo.card import EPISODES, VERIFIED_HEADINGS, verify_agent
from soulsgraph_envs.core.config import Between, Keywords, Where, is_generated, listed, read_file, shipped_names
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_policies.agents.projects import load_project, loaded_projects

#: What a folder is by a file in it.
_REPRODUCTION, _COMPARISON, _SWEEP = "reproduction.json", "compare.json", "sweep.json"
_CONTINUAL = "results/evaluations.parquet"


def _run_page(agents: Sequence[Path], /, *, out: Path | None = None, beside: Path | None = None) -> None:
    """Write the page of a run.

    Args:
        beside: Another run or agent, shown beside the first in the page.
    """
    check_extra("report", "train")
    from soulsgraph.pages.run_report import fight_video, write_run_report

    agent = agents[0]
    runs = [open_run(folder) for folder in (agent, *([] if beside is None else [beside]))]
    if out is None and is_agent(agent):
        raise SoulsGraphError(f"report: expected `out`, an HTML file for the page of {agent}, found none; name it.")
    path = out or agent / "run.html"
    check_writable(path.parent)
    screen.precompile()
    write_run_report(path, runs, fight_video(runs))
    plain = {"page": str(path), "runs": [str(run.path) for run in runs], "bytes": path.stat().st_size}
    screen.show(plain, f"written: {path}, {path.stat().st_size / 1e6:.1f} MB")


def write_reproductions(folders: Sequence[Path], /, *, out: Path | None = None) -> None:
    """Write the report of reproductions, and print their tables."""
    check_extra("report", "train")
    from soulsgraph.pages.report import DATA, PAGE
    from soulsgraph.paper.records import load_reproductions
    from soulsgraph.paper.report import write_report

    written = write_report(folders, out or folders[0] / "report")
    plain = {"report": str(written), "tables": read_file(Where(written.with_name(DATA)))["tables"]}
    tables = [one.table.to_rich() for one in load_reproductions(folders)]
    screen.show(plain, *tables, f"report in {written}, as a page in {written.with_name(PAGE)}")


def write_continual(paths: Sequence[Path], /, *, out: Path | None = None, against: str | None = None) -> None:
    """Write the report of a continual study, or of a file of evaluations if `out` is given, and print its scores.

    Args:
        against: Continual method that the others are compared with; kept, or else the best, if not given.
    """
    check_extra("report", "train")
    from soulsgraph.continual.report import RunTables
    from soulsgraph.pages.report import PAGE

    (path,) = paths
    tables = RunTables.read(path, against)
    out = path / "report" if out is None and path.is_dir() else out
    plain, lines = {"path": str(path), "scores": tables.scores.to_dict()}, list[str]()
    if out is not None:
        written = tables.write(out)
        page = written.with_name(PAGE)
        plain |= {"report": str(written), "page": str(page)}
        lines = [f"report in {written}, as a page in {page}"]
    screen.show(plain, *tables.scores.to_rich(), *lines)


def write_comparison(folders: Sequence[Path], /, *, out: Path | None = None) -> None:
    """Write the report of a comparison of graphs, and print its table."""
    check_extra("report", "train")
    from soulsgraph.project.comparing import GraphFolder

    folder = GraphFolder.open(folders[0])
    values, table, written = folder.write_report(out or folder.path / "report")
    screen.show(values, table.to_rich(), f"report in {written}")


def _sweep(folders: Sequence[Path], /) -> None:
    check_extra("report", "train")
    from soulsgraph.tune.folder import SweepFolder
    from soulsgraph.tune.results import SweepResults, rows_of

    folder = SweepFolder.open(folders[0])
    results = SweepResults(folder, rows_of(folder))
    results.save()
    screen.show(results.to_dict(), *results.to_rich())


def _summary(folders: Sequence[Path], /, *, every: bool = False) -> None:
    """Summarize recorded fights by scenario, source, player and versions, and whether they suffice to calibrate.

    Args:
        every: List every recorded fight, too.
    """
    from soulsgraph.recordings import check as checking

    (folder,) = folders
    found = checking.Coverage.of(folder)
    if folder.is_file() and not found.headers:
        raise SoulsGraphError(found.problems[0])
    groups = checking.groups_of(found.headers)
    tables = [
        text_table(title, checking.SUMMARY_HEADINGS, [group.cells for group in alike])
        for title, alike in groupby(groups, lambda group: f"{group.scenario}, {group.source}")
    ]
    if every:
        tables[:0] = checking.list_fights(found.headers)
    plain = {"groups": [group.to_dict() for group in groups], "problems": found.problems}
    plain |= {"fights": [checking.fight_row(header) for header in found.headers]} if every else {}
    screen.show(plain | {"calibrate": found.to_dict()}, *tables, *found.problems, *found.lines())


def _fidelity(
    fights: Sequence[Path],
    /,
    *,
    scenario: tuple[str, ...] = (),
    out: Path | None = None,
    episodes: evaluating.EpisodeCount = Plan.episodes,
    seed: evaluating.FightSeed = evaluating.EVALUATION_SEED,
) -> None:
    """Measure how wrong the simulator is about recorded fights: errors of replayed rows, moves, win rates.

    Args:
        scenario: Scenarios whose data are measured by recorded fights of one scenario, by name or file; several times.
        episodes: Fights of each player for its predicted win rate.
        seed: Seed of what is drawn, and of those fights: those that `evaluate` plays with it.
    """
    check_extra("report", "data" if out is None else "train")
    # Imported here: a help text need not wait for it.
    from soulsgraph.calibrate.fidelity import STEPS, fidelity_tables, measure_fidelity
    from soulsgraph.calibrate.rows import read_alike

    if out is not None:
        check_writable(out)
    read = read_alike(fights[0])
    names = [*dict.fromkeys(map(lasting_name, scenario))]
    screen.precompile()
    with stage_progress("fidelity", STEPS * len(names), screen.console, unit="steps") as progress:
        found = measure_fidelity(read, names, episodes, seed, lambda: progress.advance(1))
    lines = [f"{found.recorded}; the floor in brackets"]
    if out is not None:
        # Imported here: a table alone needs no figures.
        from soulsgraph.calibrate.fidelity_page import write_fidelity
        from soulsgraph.pages.report import PAGE

        report = write_fidelity(out, found)
        lines.append(f"report in {report}, as a page in {report.with_name(PAGE)}")
    screen.show(finite(found.to_dict()), *(table.to_rich() for table in fidelity_tables(found)), *lines)


def _known() -> tuple[str, ...]:
    from soulsgraph_envs.continual.sequences import sequence_names

    return (*agent_names(), *sequence_names(), *shipped_names("scenario"))


def _has_evaluations(file: Path) -> bool:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return "after" in read_schema(file).names
    except (ArrowException, OSError):
        return False


_REPORTS: tuple[Any, ...] = (
    _run_page,
    write_reproductions,
    write_continual,
    write_comparison,
    _sweep,
    _summary,
    _fidelity,
)


def report(
    folders: tuple[Path, ...], /, *, out: Path | None = None, **given: Annotated[Any, Keywords(_REPORTS, ("out",))]
) -> None:
    """Report what is in a folder: a run, a study or sweep, evaluations of learners, recorded fights.

    A run or an agent becomes a page, one file that needs no network: win rates, learning curves, the skill graph,
    lineage, hyperparameters and a fight. Reproductions, beside each other, sweeps, comparisons of graphs and continual
    studies become a report, as Markdown and as a page. Evaluations, ours or anyone's, are scored: performance,
    forgetting and transfer with intervals. Of recorded fights it says what they are, and whether they suffice for
    `data calibrate`; with `scenario` how wrong the simulator is about them: recorded rows are put into it and the
    recorded controls played for 0.1, 0.5 and 2 s. Every error is shown next to its floor: the same error on simulated
    fights of the same players, since hidden values have to be estimated.

    A row of a file of evaluations is a task that was played at a moment of training, with the columns method, seed,
    after (tasks finished), decisions (spent in the task that is trained, 0 between tasks), task (its position from 1),
    wins and episodes; ticks and task_name are optional. The method named scratch is the reference of forward transfer.

    Args:
        folders: Folders or Parquet files of one kind, several of reproductions; or the name of an agent of the zoo.
        out: HTML file of a run, run.html in its folder if not given; folder of a report, `report` in the first folder
            if not given; folder of that of evaluations, and of errors of the simulator.
    """
    check_extra("report", "data")
    if not folders:
        raise SoulsGraphError("report: expected a folder, a file or an agent, found none; name one.")
    first = folders[0]
    kinds: dict[str, tuple[bool, Callable[..., Any]]] = {
        "run": ((first / RunFolder.plan_file).is_file() or is_agent(first), _run_page),
        "reproduction": ((first / _REPRODUCTION).is_file(), write_reproductions),
        "comparison": ((first / _COMPARISON).is_file(), write_comparison),
        "sweep": ((first / _SWEEP).is_file(), _sweep),
        "continual study": ((first / _CONTINUAL).is_file(), write_continual),
        "file of evaluations": (first.is_file() and _has_evaluations(first), write_continual),
        "folder of fights": (
            first.suffix == ".parquet" or (first.is_dir() and any(first.rglob("*.parquet"))),
            _fidelity if given.get("scenario") else _summary,
        ),
    }
    _call(first, "report", kinds, folders, given | ({} if out is None else {"out": out}), ("reproduction",))


def _call(
    first: Path,
    command: str,
    kinds: Mapping[str, tuple[bool, Callable[..., Any]]],
    named: Sequence[Path],
    given: Mapping[str, Any],
    many: Collection[str],
) -> Any:
    """Call the function of the first kind that something named is, with what was given; raises SoulsGraphError."""
    if (kind := next((kind for kind, (holds, _) in kinds.items() if holds), None)) is None:
        raise UnknownNameError("agent, run, study, project, sequence, scenario or folder", str(first), _known())
    what = f"{command} of {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    call = taken(what, kinds[kind][1], given)
    if len(named) > 1 and kind not in many:
        raise SoulsGraphError(f"{what}: expected one, found {len(named)}; name one.")
    return call(named)


def _agents(names: Sequence[Path], /, *, episodes: Annotated[int, Between(1, EPISODES)] | None = None) -> None:
    """Play the episodes of agents' cards again.

    Args:
        episodes: Play only this many first episodes of each agent's card.
    """
    chosen = tuple(map(str, names)) or agent_names()
    for name in chosen:
        open_agent(name)  # None is played where another is none.
    screen.precompile()
    found = screen.each("check", chosen, lambda name: verify_agent(name, episodes), "agents")
    passed = all(one.holds and not one.changed for one in found)
    table = text_table("", VERIFIED_HEADINGS, [one.cells for one in found])
    screen.show([one.to_dict() for one in found], table, passed=passed)


def _run(folders: Sequence[Path], /, *, journal: str = "") -> Run | None:
    """Read every version of a run's skills, or learn some again.

    Args:
        journal: Stages of a run, separated by commas, to learn again from the journals that their fleet left, and to
            compare with the versions saved: on one kind of processor both have the same bits. A stage is named by its
            skill, an adaptation as `heal_attack@iudex-phase2`, any of several as its folder in RUN/journal.
    """
    run, journals = open_run(folders[0]), listed(journal)
    if not journals:
        evaluating.check_library(run)
        return Run(run)
    check_extra("check --journal", "train")
    # Imported here: it takes seconds, and no other check needs it.
    from soulsgraph.cli.fleet import replay

    for stage in journals:
        replay(run, stage)
    return None


def _project(projects: Sequence[Path], /, *, learn: bool = False) -> None:
    """Try what a project holds.

    Args:
        learn: Play and learn 1,000 decisions of each skill of a project instead, on top of untrained networks.
    """
    check_extra("check", "train")
    from soulsgraph.project import checking

    silence_advice()
    (project,) = projects
    known = str(project) in loaded_projects() and not project.exists()
    name, checks = str(project) if known else load_project(project).project.name, list[Any]()
    began = time.monotonic()
    screen.precompile(training=True)
    for one in (checking.smoke if learn else checking.validate)(name):
        checks.append(one)
        screen.console.print(str(one))
    failed = sum(not one.holds for one in checks)
    held = f"smoke test passed in {time.monotonic() - began:.0f} s" if learn else f"all {len(checks)} checks hold"
    line = f"{failed} of {len(checks)} checks failed" if failed else held
    screen.show([asdict(one) for one in checks], line, passed=not failed)


def _recordings(folders: Sequence[Path], /) -> None:
    """Play simulated fights again and compare every bit.

    A fight whose data have changed since is refused. On another kind of processor than it was recorded on, it is
    marked with the first tick that differs. At the end it says whether the fights suffice for `calibrate`.
    """
    check_extra("check", "data")
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.files import recording_files

    paths, coverage = recording_files(folders[0]), checking.Coverage()
    screen.precompile()
    found = screen.each("check", paths, lambda path: checking.check_file(path, coverage.add), "fights")
    counts = Counter(one.verdict for one in found)
    lines = [str(one) for one in found if one.verdict not in ("same", "whole")]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    passed = not any(one.verdict in checking.WRONG for one in found)
    # For programs it is in the report: this is a list of verdicts.
    suffices = () if screen.json else coverage.lines()
    screen.show([asdict(one) for one in found], *lines, f"{len(found)} files: {counted}", *suffices, passed=passed)


def _bosses(names: Sequence[Path], /) -> None:
    from soulsgraph_envs.continual.boss_filter import check_boss

    scenarios = dict.fromkeys(scenario for name in names for scenario in _scenarios(str(name)))
    screen.precompile()
    results = {scenario: check_boss(scenario) for scenario in scenarios}
    rows = [{"scenario": scenario, **vars(result)} for scenario, result in results.items()]
    passed = all(result.passed for result in results.values())
    screen.show(rows, readable_table("Bosses by the filter", rows).to_rich(), passed=passed)


def _scenarios(name: str) -> tuple[str, ...]:
    """Return the scenarios of a sequence, or a scenario itself; raises SoulsGraphError for what is neither."""
    from soulsgraph_envs.continual.sequences import load_sequence, sequence_names
    from soulsgraph_envs.core.scenario import load_scenario

    if name in sequence_names() or (name.endswith(".toml") and "tasks" in read_file(Where(Path(name)))):
        return load_sequence(name).scenarios
    if not name.endswith(".toml") and not is_generated(name) and name not in _known():
        raise UnknownNameError("sequence or scenario", name, _known())
    load_scenario(name)
    return (name,)


def check(
    names: tuple[Path, ...] = (), /, **given: Annotated[Any, Keywords((_agents, _run, _project, _recordings, _bosses))]
) -> Any:
    """Check what is named: agents of the zoo, runs, projects, recorded fights, bosses; exit 1 on failure.

    Agents play the episodes of their cards again: a win rate must be within 1 point of the card's on the kind of
    processor that the card comes from, elsewhere inside the card's interval. A run's skills are read, weights included,
    and every version is shown with its lineage. A project's skills, graphs, fights, rewards, references and one update
    are tried. Recorded fights of the simulator are played again, and every bit is compared. Bosses, by sequence or
    scenario, pass the filter: a script that sees ahead wins, random play and the script without dodging lose.

    Args:
        names: What to check, all of one kind; all agents of the zoo if nothing is named.
    """
    first = next(iter(names), Path("zoo"))
    is_project = str(first) in loaded_projects() or (first / "pyproject.toml").is_file()
    is_fight = first.suffix == ".toml" or is_generated(str(first)) or str(first) in _known()
    kinds: dict[str, tuple[bool, Callable[..., Any]]] = {
        "agent": (not names or is_agent(first), _agents),
        "run": ((first / RunFolder.plan_file).is_file(), _run),
        "project": (is_project, _project),
        "boss": (is_fight, _bosses),
        "fight": (first.exists(), _recordings),
    }
    return _call(first, "check", kinds, names, given, ("agent", "boss"))
