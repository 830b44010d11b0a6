"""The commands of selective adaptation, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.options import (
    DEFAULT_EVALUATION,
    DEFAULT_OUTPUT,
    DEFAULT_SESSION,
    DEFAULT_TRANSFER,
    EvaluationOptions,
    OutputOptions,
    SessionOptions,
    check_ray,
    display_of,
    make_console,
    print_json,
    workplace,
)
from soulsgraph.cli.remedies import in_commands
from soulsgraph.files import slug
from soulsgraph.paper.study import ADAPTED
from soulsgraph.plan import lasting_name
from soulsgraph.progress import silence_advice
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.measures import TransferOptions
from soulsgraph_envs.drivers.realtime.link import load_games
from soulsgraph_policies.atomic import check_writable

if TYPE_CHECKING:
    from rich.console import Console

    from soulsgraph.transfer.measures import Question
    from soulsgraph.transfer.over_seeds import SeedsTable
    from soulsgraph.transfer.recovery import Arm
    from soulsgraph.transfer.report import TransferReport
    from soulsgraph_policies.artifact import SkillCard

Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")]


def adapt(
    folder: Annotated[Positional[Path], "RUN"],
    session: SessionOptions = DEFAULT_SESSION,
    scenario: str = TransferOptions.scenario,
    skills: str = ",".join(ADAPTED),
    budget: int | None = None,
    after: str | None = None,
    jointly: bool = False,
) -> None:
    """Fine-tune chosen skills in another scenario, everything else frozen; earlier versions stay.

    Args:
        folder: Run folder with trained skills.
        scenario: Scenario to adapt to: a name or a TOML file.
        skills: Skills to adapt, separated by commas; auto: those that transfer recommends; all.
        budget: Steps for each skill; 40,000 times the run's scale if not given.
        after: Scenario whose versions are continued; the last one the run was adapted to if not given.
        jointly: Adapt the skills in the same fights, each for its own steps, instead of one after another.
    """
    from soulsgraph.domains import adaptation_stages, check_budget, check_target, named_skills
    from soulsgraph.train import train_stages

    run, console = RunFolder.open(folder), make_console(session)
    scenario, after = lasting_name(scenario), after and lasting_name(after)
    check_budget(budget)
    source = check_target(run, scenario, after)
    chosen = named_skills(run, skills)
    if chosen is None:
        check_ray(session)
        if session.games is not None:
            load_games(session.games)
        chosen = _recommended(run, source, scenario, session)
        console.print(f"recommended: {', '.join(chosen) or 'no skill, nothing to do'}", highlight=False)
    cards: list[SkillCard] = []
    if chosen or skills != "auto":
        stages = adaptation_stages(run, scenario, chosen, budget, source, jointly)
        with workplace(run, session) as place:
            cards = train_stages(place, stages, console)
    if session.json:
        print_json([card.to_dict() for card in cards])


def transfer(
    folders: Runs,
    output: OutputOptions = DEFAULT_OUTPUT,
    evaluation: TransferOptions = DEFAULT_TRANSFER,
    controls: bool = False,
    out: Path | None = None,
) -> None:
    """Measure, without training, what a shift does to each skill, and recommend which to adapt.

    Args:
        folders: Run folders with trained skills, one a seed; each is measured by itself.
        controls: Check the recommendation on shifts whose cause is known instead.
        out: Folder for the results over all seeds.
    """
    from soulsgraph.transfer.measures import Question
    from soulsgraph.transfer.over_seeds import open_seeds

    runs, console = open_seeds(folders), make_console(output)
    home = evaluation.home or next(iter(runs.values())).plan.scenario
    question = Question(**asdict(evaluation) | {"home": home})
    if controls:
        plain: Any = _controls(runs, question, Printing(console, output, out))
    else:
        plain = _transfers(runs, question, Printing(console, output, out))
    for run in runs.values():
        console.print(f"results in {run.path / 'results'}", highlight=False, soft_wrap=True)
    if output.json:
        print_json(plain)


def recovery(
    folders: Runs,
    session: SessionOptions = DEFAULT_SESSION,
    evaluation: TransferOptions = DEFAULT_TRANSFER,
    budget: int = 80_000,
    jointly: str | None = None,
    out: Path | None = None,
) -> None:
    """Compare the win rate that the same steps recover: the recommended skills, each alone, all, all from scratch.

    Args:
        folders: Run folders with trained skills, one a seed; each stays as it is, its arms get folders below it.
        budget: Steps of each arm in all.
        jointly: Skills to adapt in the same fights and one after another instead, separated by commas; auto; all.
        out: Folder for the results over all seeds.
    """
    from soulsgraph.domains import check_target
    from soulsgraph.train import Workplace
    from soulsgraph.transfer.over_seeds import open_seeds, recovery_over_seeds
    from soulsgraph.transfer.recovery import JOINTLY, Target, recover, recovery_table, results_name
    from soulsgraph.worker_process import WorkerProcess
    from soulsgraph_clusters.session import connect

    runs, console = open_seeds(folders), make_console(session)
    kind = "recovery" if jointly is None else JOINTLY
    target = Target(**asdict(evaluation), budget=budget, kind=kind)
    sources = {seed: check_target(run, target.scenario, target.home) for seed, run in runs.items()}
    check_ray(session)
    arms = {seed: _arms(run, sources[seed], target.scenario, session, jointly) for seed, run in runs.items()}
    silence_advice()
    results = {}
    with (
        connect(session.address, needed=any(run.plan.env_runners for run in runs.values())) as joined,
        WorkerProcess() as worker,
    ):
        place = partial(Workplace, session=joined, display=display_of(session), worker=worker)
        for seed, run in runs.items():
            with run.locked():
                results[seed] = recover(run, target, arms[seed], place, console)
    printing = Printing(console, session, out)
    together = printing.together({results_name(target): recovery_over_seeds(target, results)}, shown=len(runs) > 1)
    if len(runs) == 1:
        (single,) = results.values()
        console.print(recovery_table(target, single))
        together = single
    if session.json:
        print_json(together)


def retention(
    folders: Runs,
    output: OutputOptions = DEFAULT_OUTPUT,
    evaluation: EvaluationOptions = DEFAULT_EVALUATION,
    out: Path | None = None,
) -> None:
    """Evaluate every scenario a run went through with the versions after each: transfer and forgetting.

    Args:
        folders: Run folders that were adapted to one scenario or more, one a seed, all to the same.
        out: Folder for the results over all seeds.
    """
    from soulsgraph.domains import domain_chain
    from soulsgraph.transfer.over_seeds import chain_rates_over_seeds, check_chains, measures_over_seeds, open_seeds
    from soulsgraph.transfer.retention import measure_retention

    runs, console = open_seeds(folders), make_console(output)
    printing, found = Printing(console, output, out), {}
    check_chains({seed: domain_chain(run) for seed, run in runs.items()})
    for seed, run in runs.items():
        with run.locked():
            found[seed] = measure_retention(run, evaluation.episodes, evaluation.seed, display_of(output))
        if len(runs) > 1:
            console.print(f"seed {seed}", highlight=False)
        console.print(found[seed].to_rich())
        lines = in_commands("\n".join(found[seed].lines()), "retention")
        console.print(lines, highlight=False, soft_wrap=True)
    tables = {"retention": chain_rates_over_seeds(found), "retention-measures": measures_over_seeds(found)}
    together = printing.together(tables, shown=len(runs) > 1)
    if output.json:
        (single, *more) = found.values()
        print_json(together if more else single.to_dict())


@dataclass(frozen=True)
class Printing:
    """Where the tables of several seeds go: the console, and a folder if one was named.

    Raises:
        WriteError: if the folder cannot be written.
    """

    console: Console
    output: OutputOptions
    folder: Path | None

    def __post_init__(self) -> None:
        if self.folder is not None:
            check_writable(self.folder)

    def together(self, tables: Mapping[str, SeedsTable], shown: bool) -> Any:
        """Print the tables if there are several seeds, write them if a folder was named; return them as plain data."""
        for name, table in tables.items():
            for part in table.to_rich() if shown else ():
                self.console.print(part)
            if self.folder is not None:
                table.save(self.folder, name)
        if self.folder is not None:
            self.console.print(f"all seeds together in {self.folder}", highlight=False, soft_wrap=True)
        return {name: table.to_dict() for name, table in tables.items()}


def _controls(runs: Mapping[int, RunFolder], question: Question, printing: Printing) -> Any:
    from soulsgraph.transfer.over_seeds import controls_over_seeds
    from soulsgraph.transfer.report import controls_table, run_controls

    results = {}
    for seed, run in runs.items():
        with run.locked():
            results[seed] = run_controls(run, question, display=display_of(printing.output))
    together = printing.together({"transfer-controls": controls_over_seeds(results)}, shown=len(runs) > 1)
    if len(runs) > 1:
        return together
    (single,) = results.values()
    printing.console.print(controls_table(single))
    return single


def _transfers(runs: Mapping[int, RunFolder], question: Question, printing: Printing) -> Any:
    from soulsgraph.transfer.over_seeds import recommendations_over_seeds, win_rates_over_seeds

    reports = {seed: _measured(run, question, printing.output) for seed, run in runs.items()}
    name = f"transfer-{slug(question.scenario)}"
    tables = {name: recommendations_over_seeds(reports), f"{name}-win-rates": win_rates_over_seeds(reports)}
    together = printing.together(tables, shown=len(runs) > 1)
    if len(runs) > 1:
        return together
    (report,) = reports.values()
    for table in report.to_rich():
        printing.console.print(table)
    printing.console.print("\n".join(report.lines()), highlight=False, soft_wrap=True)
    return report.to_dict()


def _measured(run: RunFolder, question: Question, output: OutputOptions) -> TransferReport:
    from soulsgraph.transfer.report import save_transfer
    from soulsgraph.transfer.report import transfer as measured

    with run.locked():
        report = measured(run, question, display_of(output))
        save_transfer(run, report)
    return report


def _arms(run: RunFolder, home: str, scenario: str, output: OutputOptions, jointly: str | None) -> tuple[Arm, ...]:
    """Return the arms of a recovery, or where skills are named those that adapt them jointly and one after another."""
    from soulsgraph.domains import named_skills
    from soulsgraph.transfer.recovery import arms_of, joint_arms

    named = None if jointly is None else named_skills(run, jointly)
    skills = _recommended(run, home, scenario, output) if named is None else named
    if jointly is None:
        return arms_of(run, skills)
    return joint_arms(skills) if skills else ()


def _recommended(run: RunFolder, home: str, scenario: str, output: OutputOptions) -> tuple[str, ...]:
    """Return the recommendation saved for the versions in play; measure first if there is none."""
    from soulsgraph.transfer.measures import Question
    from soulsgraph.transfer.report import saved_recommendation

    saved = saved_recommendation(run, home, scenario)
    return saved if saved is not None else _measured(run, Question(scenario, home=home), output).recommended
