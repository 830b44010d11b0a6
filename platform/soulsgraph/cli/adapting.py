"""The commands of selective adaptation, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, OutputOptions, RunOptions
from soulsgraph.paper.study import ADAPTED
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import check_learns, lasting_name
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.transfer import Question, TransferOptions, check_chains, check_sources, open_seeds
from soulsgraph.zoo import is_agent, open_run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.games.link import load_games

if TYPE_CHECKING:
    from rich.console import RenderableType

    from soulsgraph.results.seeds import SeedsTable
    from soulsgraph.transfer.recovery import Arm
    from soulsgraph.transfer.report import Recommendation, TransferReport

#: In place of skills to adapt: those that `transfer` recommends. `auto` are those that its quick rule selects.
_MEASURED = "measured"
#: How `adapt` is asked for every skill.
_EVERY = "adapt --skills all"
Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")]


def adapt(
    folder: Positional[Path],
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
    scenario: str = TransferOptions.scenario,
    skills: str = ",".join(ADAPTED),
    budget: int | None = None,
    after: str | None = None,
    jointly: bool = False,
    overrides: Annotated[tuple[str, ...], arg(name="set", metavar=options.SETTINGS)] = (),
    copy: options.Copy = None,
) -> None:
    """Fine-tune chosen skills in another scenario, everything else frozen; earlier versions stay.

    Args:
        folder: Run folder with trained skills, or the name of an agent of the zoo.
        scenario: Scenario to adapt to: a name or a TOML file.
        skills: Skills to adapt, separated by commas; auto: those that transfer --quick selects, with at most 8,000
            decisions in the new fight; measured: those that transfer recommends, with hundreds of thousands; or all.
        budget: Steps for each skill; 40,000 times the run's scale if not given.
        after: Scenario whose versions are continued; the last one the run was adapted to if not given.
        jointly: Adapt the skills in the same fights, each for its own steps, instead of one after another.
        overrides: Options of the learner to change while adapting, beside the run's: lr=1e-4; of one skill
            alone dodge.gamma=0.99. The same command, with the same options, resumes.
        copy: Run folder for a copy of the agent, which is adapted; the same command resumes it.
    """
    from soulsgraph.pages.run_report import show_fight
    from soulsgraph.runs.train import train_stages
    from soulsgraph_clusters.sessions.session import check_session

    # Refused before anything is copied.
    options.changed_run(open_run(folder), overrides)
    run = options.changed_run(RunFolder.open(options.own_run(folder, copy, session)), overrides)
    scenario, after = lasting_name(scenario), after and lasting_name(after)
    lineage.check_budget(budget)
    source = lineage.check_target(run, scenario, after)
    named = _named(run, skills)
    chosen, cost = named or (), dict[str, Any]()
    if named is None:
        check_session(session.address)
        if session.games is not None:
            load_games(session.games)
        chosen, cost["selection_decisions"] = _found(run, source, scenario, session, skills)
    cards = []
    if chosen or named is not None:
        stages = lineage.adaptation_stages(run, scenario, chosen, budget, source, jointly)
        check_learns(run.plan, [stage for stage in stages if not lineage.finished_versions(run, stage)])
        with options.workplace(run, session) as place:
            cards = train_stages(place, stages, session.console)
            show_fight(place, session.console)
    note = run.plan.budget_note if cards and budget is None else ""
    session.show([card.to_dict() | cost for card in cards], *([note] if note else []))


def transfer(
    folders: Runs,
    output: RunOptions = DEFAULT_RUN,
    evaluation: TransferOptions = options.DEFAULT_TRANSFER,
    controls: bool = False,
    quick: bool = False,
    out: Path | None = None,
    copy: options.Copy = None,
) -> None:
    """Measure, without training, what a shift does to each skill, and recommend which to adapt.

    Args:
        folders: Run folders with trained skills, or agents of the zoo, one for each seed; each is measured by itself.
        controls: Check the recommendation on shifts with a known cause instead.
        quick: Only select skills, with at most 8,000 decisions in the new fight; episodes and seed have no effect then.
        out: Folder for the results over all seeds.
        copy: Folder for copies of the agents, a run folder of its name each; results are written there.
    """
    # Imported here: its statistics are scipy's, which a help text need not wait for.
    from soulsgraph.continual.selecting import overlooked
    from soulsgraph.transfer import report as reports

    if quick:
        if controls or out or copy:
            beside = "--controls" if controls else "--out" if out else "--run"
            raise SoulsGraphError(f"--quick: expected no {beside}, found it; leave it out, for nothing is written.")
        _show_selections(open_seeds([*folders]), evaluation, output)
        return
    runs = _open(folders, copy, output, out)
    home = evaluation.home or next(iter(runs.values())).plan.scenario
    question = Question(**asdict(evaluation) | {"home": home})
    alone: tuple[Any, list[RenderableType]]
    if controls:
        checked = {}
        output.precompile()
        for seed, run in runs.items():
            with run.locked():
                checked[seed] = first = reports.run_controls(run, question, display=output.display)
        tables = {"transfer-controls": reports.controls_over_seeds(checked)}
        alone = first, [reports.controls_table(first)]
    else:
        measured = {seed: _measured(run, question, output) for seed, run in runs.items()}
        first_run, report = next(iter(runs.values())), next(iter(measured.values()))
        name = reports.transfer_name(first_run, question.home, question.scenario)
        tables = {
            name: reports.recommendations_over_seeds(measured),
            f"{name}-win-rates": reports.win_rates_over_seeds(measured),
        }
        left_out = [] if report.recommended else [overlooked(_EVERY)]
        alone = report.to_dict(), [*report.to_rich(), "\n".join([*report.lines(), *left_out])]
    _show(output, out, tables, alone if len(runs) == 1 else None)
    for run in runs.values():
        output.console.print(f"results in {run.path / 'results'}")


def recovery(
    folders: Runs,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    evaluation: TransferOptions = options.DEFAULT_TRANSFER,
    budget: int = 80_000,
    jointly: str | None = None,
    out: Path | None = None,
    copy: options.Copy = None,
) -> None:
    """Compare how much win rate the same steps recover: recommended skills, each alone, all, all from scratch.

    Args:
        folders: Run folders with trained skills, or agents of the zoo, one for each seed; they stay unchanged, and
            their arms get folders below them.
        budget: Total steps of each arm.
        jointly: Compare adapting these skills in the same fights with one after another instead, separated by commas;
            auto, measured and all as in adapt.
        out: Folder for the results over all seeds.
        copy: Folder for copies of the agents, a run folder of its name each; results are written there.
    """
    from soulsgraph.runs.train import Workplace
    from soulsgraph.transfer import recovery as recovering
    from soulsgraph_clusters.sessions.session import check_session, connect

    runs = _open(folders, copy, session, out)
    kind = "recovery" if jointly is None else recovering.JOINTLY
    target = recovering.RecoveryTarget(**asdict(evaluation), budget=budget, kind=kind)
    sources = {seed: lineage.check_target(run, target.scenario, target.home) for seed, run in runs.items()}
    check_sources(sources, "recovery", "name one of them for all with `home`")
    check_session(session.address)
    arms = {seed: _arms(run, sources[seed], target.scenario, session, jointly) for seed, run in runs.items()}
    silence_advice()
    session.precompile(training=True)
    results = {}
    needed = any(run.plan.env_runners for run in runs.values())
    with (
        connect(session.address, needed=needed, places_within_s=session.places_within_s) as joined,
        WorkerProcess() as worker,
    ):
        place = partial(Workplace, session=joined, display=session.display, worker=worker)
        for seed, run in runs.items():
            with run.locked():
                results[seed] = single = recovering.recover(run, target, arms[seed], place, session.console)
    (run, *_), (home, *_), (found, *_) = runs.values(), sources.values(), arms.values()
    name = recovering.results_name(target, run.plan.scenario, home, found)
    tables = {name: recovering.recovery_over_seeds(target, results)}
    alone = single, [recovering.recovery_table(target, single)]
    _show(session, out, tables, alone if len(runs) == 1 else None)


def necessity(
    folders: Runs,
    output: RunOptions = DEFAULT_RUN,
    scenario: str | None = None,
    start: str | None = None,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
    out: Path | None = None,
) -> None:
    """Measure what agents lose when one skill acts at random, does nothing, or never learned.

    All other skills play as trained, in the same fights. The scripted reference is measured too: its losses are due to
    the fight, not to training.

    Args:
        folders: Run folders with trained skills, or agents of the zoo, one for each seed; they are only read.
        scenario: Scenario to fight in; the runs' own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        out: Folder for the results over all seeds.
    """
    from soulsgraph.transfer.necessity import measure_necessity

    runs = open_seeds(folders)
    if out is not None:
        check_writable(out)
    fight = next(iter(runs.values())).plan.scenario if scenario is None else lasting_name(scenario)
    output.precompile()
    measured = measure_necessity(runs, fight, evaluation.episodes, evaluation.seed, start, output.display)
    output.show(measured.to_dict(), *measured.to_rich())
    if out is not None:
        measured.save(out)
        output.console.print(f"results in {out}")


def retention(
    folders: Runs,
    output: RunOptions = DEFAULT_RUN,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
    out: Path | None = None,
) -> None:
    """Evaluate every scenario of a run with the versions after each adaptation: transfer and forgetting.

    Args:
        folders: Run folders that were adapted to the same scenarios, one or more; one folder for each seed.
        out: Folder for the results over all seeds.
    """
    from soulsgraph.transfer.retention import chain_rates_over_seeds, measure_retention, measures_over_seeds

    runs, console, found = _open(folders, None, output, out), output.console, {}
    check_chains({seed: lineage.domain_chain(run) for seed, run in runs.items()})
    output.precompile()
    for seed, run in runs.items():
        with run.locked():
            found[seed] = single = measure_retention(run, evaluation.episodes, evaluation.seed, output.display)
        if len(runs) > 1:
            console.print(f"seed {seed}")
        console.print(single.to_rich())
        console.print("\n".join(single.lines()))
    tables = {"retention": chain_rates_over_seeds(found), "retention-measures": measures_over_seeds(found)}
    _show(output, out, tables, (single.to_dict(), []) if len(runs) == 1 else None)


def _open(
    folders: Sequence[Path], copies: Path | None, output: OutputOptions, out: Path | None
) -> dict[int, RunFolder]:
    """Open the runs by seed to write into them; check that the folder of the results over all seeds can be written.

    Agents of the zoo among them are copied to folders below `copies` first.
    """
    if copies is not None and not any(map(is_agent, folders)):
        raise SoulsGraphError("--run: expected none, for no agent of the zoo is named; leave it out.")
    copied = [copies / folder if copies and is_agent(folder) else None for folder in folders]
    runs = open_seeds([options.own_run(folder, copy, output) for folder, copy in zip(folders, copied, strict=True)])
    if out is not None:
        check_writable(out)
    return runs


def _show(
    output: OutputOptions,
    out: Path | None,
    tables: Mapping[str, SeedsTable],
    alone: tuple[Any, Sequence[RenderableType]] | None,
) -> None:
    """Print the tables over all seeds, and write them if a folder was named.

    `alone` is what is printed in their place where there is a single seed: plain values, and parts for people.
    """
    if alone is None:
        together = {name: table.to_dict() for name, table in tables.items()}
        alone = together, [part for table in tables.values() for part in table.to_rich()]
    plain, parts = alone
    output.show(plain, *parts)
    if out is not None:
        for name, table in tables.items():
            table.save(out, name)
        output.console.print(f"all seeds together in {out}")


def _show_selections(runs: Mapping[int, RunFolder], asked: TransferOptions, output: OutputOptions) -> None:
    """Select skills of each run by few decisions, and show which and why."""
    from soulsgraph.continual.selecting import select_for_run

    output.precompile()
    found = {seed: select_for_run(run, asked.home or run.plan.scenario, asked.scenario) for seed, run in runs.items()}
    headings = {seed: [f"seed {seed}"] if len(found) > 1 else [] for seed in found}
    shown = [line for seed, selection in found.items() for line in headings[seed] + selection.lines(_EVERY)]
    output.show({str(seed): selection.to_dict() for seed, selection in found.items()}, "\n".join(shown))


def _named(run: RunFolder, skills: str) -> tuple[str, ...] | None:
    """Return the skills that are named, or None where they have to be found first."""
    return None if skills.strip() == _MEASURED else lineage.named_skills(run, skills)


def _found(run: RunFolder, home: str, scenario: str, output: OutputOptions, skills: str) -> Recommendation:
    """Return the skills that `transfer` recommends, or that few decisions select, and show which at what cost."""
    from soulsgraph.continual.selecting import overlooked, select_and_show
    from soulsgraph.transfer.report import Recommendation

    if skills.strip() != _MEASURED:
        output.precompile()
        selection = select_and_show(run, home, scenario, output.console, _EVERY)
        return Recommendation(selection.skills, selection.decisions)
    recommended = _recommended(run, home, scenario, output)
    output.console.print(f"recommended: {', '.join(recommended.skills) or 'no skill'}")
    if recommended.decisions is not None:
        output.console.print(f"played: {recommended.decisions:,} decisions in the new fight")
    if not recommended.skills:
        output.console.print(overlooked(_EVERY), soft_wrap=True)
    return recommended


def _measured(run: RunFolder, question: Question, output: OutputOptions) -> TransferReport:
    from soulsgraph.transfer import report as reports

    output.precompile()
    with run.locked():
        report = reports.transfer(run, question, output.display)
        reports.save_transfer(run, report)
    return report


def _arms(run: RunFolder, home: str, scenario: str, output: OutputOptions, jointly: str | None) -> tuple[Arm, ...]:
    """Return the arms of a recovery, or where skills are named those that adapt them jointly and one after another."""
    from soulsgraph.transfer.recovery import arms_of, joint_arms

    if jointly is None:
        return arms_of(run, *_recommended(run, home, scenario, output))
    if (named := _named(run, jointly)) is not None:
        return joint_arms(named)
    found = _found(run, home, scenario, output, jointly)
    return joint_arms(*found) if found.skills else ()


def _recommended(run: RunFolder, home: str, scenario: str, output: OutputOptions) -> Recommendation:
    """Return the recommendation saved for the versions in play; measure first if there is none."""
    from soulsgraph.transfer.report import saved_recommendation

    saved = saved_recommendation(run, home, scenario)
    return saved if saved is not None else _measured(run, Question(scenario, home=home), output).recommendation
