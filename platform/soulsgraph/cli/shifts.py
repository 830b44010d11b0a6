"""Skills in another fight: adapted to it, and what the change does to them, measured without and by training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from soulsgraph.cli import options
from soulsgraph.cli.output import screen
from soulsgraph.paper.study import ADAPTED
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import check_learns, lasting_name
from soulsgraph.runs.progress import silence_advice
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.transfer import Question, TransferOptions, check_chains, check_sources, open_seeds
from soulsgraph.zoo import is_agent, open_run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.games.link import load_games

if TYPE_CHECKING:
    from rich.console import RenderableType

    from soulsgraph.results.seeds import SeedsTable
    from soulsgraph.transfer.recovery import Arm
    from soulsgraph.transfer.report import Recommendation, TransferReport

    #: Tables over all seeds by name, and what is shown of a single one: plain values, and parts for people.
    Shown = tuple[Mapping[str, SeedsTable], tuple[Any, Sequence[RenderableType]]]

#: In place of skills to adapt: those that `transfer` recommends. `auto` are those that its quick rule selects.
_MEASURED = "measured"
#: How `adapt` is asked for every skill.
_EVERY = "adapt --skills all"
#: Where a shift leads and comes from, and the fights that measure it.
Shift = Annotated[TransferOptions, Parameter(name="*")]


def adapt(
    agent: Path,
    /,
    *,
    scenario: str = TransferOptions.scenario,
    skills: str = ",".join(ADAPTED),
    budget: int | None = None,
    after: str | None = None,
    jointly: bool = False,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=True)] = (),
    run: Path | None = None,
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
) -> None:
    """Fine-tune chosen skills in another scenario, everything else frozen; earlier versions stay.

    Args:
        agent: Run folder with trained skills, or the name of an agent of the zoo.
        scenario: Scenario to adapt to: a name or a TOML file.
        skills: Skills to adapt, separated by commas; auto: those that the quick rule of transfer selects, with at most
            8,000 decisions in the new fight; measured: those that transfer recommends, with hundreds of thousands; or
            all.
        budget: Steps for each skill; 40,000 times the run's scale if not given.
        after: Scenario whose versions are continued; the last one the run was adapted to if not given.
        jointly: Adapt the skills in the same fights, each for its own steps, instead of one after another.
        overrides: Options of the learner to change while adapting, beside the run's: lr=1e-4; of one skill
            alone dodge.gamma=0.99. The same command, with the same options, resumes.
        run: Run folder for a copy of the agent, which is adapted; the same command resumes it.
    """
    check_extra("adapt", "train")
    from soulsgraph.pages.run_report import show_fight
    from soulsgraph.runs.train import train_stages
    from soulsgraph_clusters.sessions.session import check_session

    # Refused before anything is copied.
    options.changed_run(open_run(agent), overrides)
    folder = options.changed_run(RunFolder.open(options.own_run(agent, run)), overrides)
    scenario, after = lasting_name(scenario), after and lasting_name(after)
    lineage.check_budget(budget)
    source = lineage.check_target(folder, scenario, after)
    named = _named_skills(folder, skills)
    chosen, cost = named or (), dict[str, Any]()
    if named is None:
        check_session(session.address)
        if session.games is not None:
            load_games(session.games)
        chosen, cost["selection_decisions"] = _found_skills(folder, source, scenario, skills)
    cards = []
    if chosen or named is not None:
        stages = lineage.adaptation_stages(folder, scenario, chosen, budget, source, jointly)
        check_learns(folder.plan, lineage.unfinished(folder, stages))
        with options.workplace(folder, session) as place:
            cards = train_stages(place, stages, screen.console)
            show_fight(place, screen.console)
    note = folder.plan.budget_note if cards and budget is None else ""
    screen.show([card.to_dict() | cost for card in cards], *([note] if note else []))


def _named_skills(run: RunFolder, skills: str) -> tuple[str, ...] | None:
    """Return the skills that are named, or None where they have to be found first."""
    return None if skills.strip() == _MEASURED else lineage.named_skills(run, skills)


def _found_skills(run: RunFolder, home: str, scenario: str, skills: str) -> Recommendation:
    """Return the skills that `transfer` recommends, or that few decisions select, and show which at what cost."""
    from soulsgraph.continual.selecting import overlooked, select_and_show
    from soulsgraph.transfer.report import Recommendation

    if skills.strip() != _MEASURED:
        screen.precompile()
        selection = select_and_show(run, home, scenario, screen.console, _EVERY)
        return Recommendation(selection.skills, selection.decisions)
    recommended = _recommended_skills(run, home, scenario)
    screen.console.print(f"recommended: {', '.join(recommended.skills) or 'no skill'}")
    if recommended.decisions is not None:
        screen.console.print(f"played: {recommended.decisions:,} decisions in the new fight")
    if not recommended.skills:
        screen.console.print(overlooked(_EVERY), soft_wrap=True)
    return recommended


def transfer(
    agents: tuple[Path, ...],
    /,
    *,
    shift: Shift = TransferOptions(),  # noqa: B008 - frozen
    controls: bool = False,
    quick: bool = False,
    recover: int | None = None,
    jointly: str | None = None,
    run: Path | None = None,
    out: Path | None = None,
    session: options.SessionOptions = options.DEFAULT_SESSION,
) -> None:
    """Measure, without training, what a shift does to each skill, and recommend which to adapt.

    With `recover` it trains: it compares how much win rate the same steps recover by the recommended skills, each skill
    alone, all, and all from scratch. The runs stay unchanged, and these arms get folders below them.

    Args:
        agents: Run folders with trained skills, or agents of the zoo, one for each seed; each is measured by itself.
        controls: Check the recommendation on shifts with a known cause instead.
        quick: Only select skills, with at most 8,000 decisions in the new fight; episodes and seed have no effect then.
        recover: Total steps of each arm of a recovery, such as 80000.
        jointly: Compare in a recovery adapting these skills in the same fights with one after another instead,
            separated by commas; auto, measured and all as in adapt.
        run: Folder for copies of the agents, a run folder of its name each; results are written there.
        out: Folder for the results over all seeds.
    """
    check_extra("study transfer", "train")
    # Imported here: its statistics are scipy's, which a help text need not wait for.

    training = {"jointly": jointly, "address": session.address, "places_within": session.places_within}
    if quick:
        writing: dict[str, object] = {"controls": controls, "recover": recover, "out": out, "run": run}
        options.check_taken("study transfer --quick", writing | training)
        _show_selections(open_seeds([*agents]), shift)
        return
    if recover is None:
        options.check_taken("study transfer without recover", training)
    else:
        options.check_taken("study transfer --recover", {"controls": controls})
    runs = _open(agents, run, out)
    if recover is not None:
        _recover(runs, shift, recover, jointly, out, session)
        return
    home = shift.home or next(iter(runs.values())).plan.scenario
    tables, alone = (_controls if controls else _recommend)(runs, Question(**asdict(shift) | {"home": home}))
    _show(out, tables, alone if len(runs) == 1 else None)
    for folder in runs.values():
        screen.console.print(f"results in {folder.path / 'results'}")


def _controls(runs: Mapping[int, RunFolder], question: Question) -> Shown:
    """Check the recommendation on shifts with a known cause."""
    from soulsgraph.transfer import report as reports

    checked = {}
    screen.precompile()
    for seed, run in runs.items():
        with run.locked():
            checked[seed] = reports.run_controls(run, question, display=screen.display)
    first = next(iter(checked.values()))
    return {"transfer-controls": reports.controls_over_seeds(checked)}, (first, [reports.controls_table(first)])


def _recommend(runs: Mapping[int, RunFolder], question: Question) -> Shown:
    """Measure what a shift does to each skill of each run, and recommend which to adapt."""
    from soulsgraph.continual.selecting import overlooked
    from soulsgraph.transfer import report as reports

    measured = {seed: _measured(run, question) for seed, run in runs.items()}
    run, report = next(iter(runs.values())), next(iter(measured.values()))
    name = reports.transfer_name(run, question.home, question.scenario)
    tables = {
        name: reports.recommendations_over_seeds(measured),
        f"{name}-win-rates": reports.win_rates_over_seeds(measured),
    }
    left_out = [] if report.recommended else [overlooked(_EVERY)]
    return tables, (report.to_dict(), [*report.to_rich(), "\n".join([*report.lines(), *left_out])])


def _recover(
    runs: Mapping[int, RunFolder],
    shift: TransferOptions,
    budget: int,
    jointly: str | None,
    out: Path | None,
    session: options.SessionOptions,
) -> None:
    """Train the arms of a recovery by their budget, and compare them."""
    from soulsgraph.runs.train import Workplace
    from soulsgraph.transfer import recovery as recovering
    from soulsgraph_clusters.sessions.session import check_session, connect

    kind = "recovery" if jointly is None else recovering.JOINTLY
    target = recovering.RecoveryTarget(**asdict(shift), budget=budget, kind=kind)
    sources = {seed: lineage.check_target(one, target.scenario, target.home) for seed, one in runs.items()}
    check_sources(sources, "recovery", "name one of them for all with `home`")
    check_session(session.address)
    arms = {seed: _arms(one, sources[seed], target.scenario, jointly) for seed, one in runs.items()}
    silence_advice()
    screen.precompile(training=True)
    results = {}
    needed = any(one.plan.env_runners for one in runs.values())
    with (
        connect(session.address, needed=needed, places_within_s=session.places_within_s) as joined,
        WorkerProcess() as worker,
    ):
        place = partial(Workplace, session=joined, display=screen.display, worker=worker)
        for seed, one in runs.items():
            with one.locked():
                results[seed] = single = recovering.recover(one, target, arms[seed], place, screen.console)
    (first, *_), (home, *_), (found, *_) = runs.values(), sources.values(), arms.values()
    name = recovering.results_name(target, first.plan.scenario, home, found)
    tables = {name: recovering.recovery_over_seeds(target, results)}
    alone = single, [recovering.recovery_table(target, single)]
    _show(out, tables, alone if len(runs) == 1 else None)


def ablations(
    agents: Sequence[Path], scenario: str | None, start: str | None, episodes: int, seed: int, out: Path | None
) -> None:
    """Measure what agents and the scripted reference lose when one skill acts at random, idles, or never learned."""
    from soulsgraph.transfer.necessity import measure_necessity

    runs = open_seeds([*agents])
    fight = next(iter(runs.values())).plan.scenario if scenario is None else lasting_name(scenario)
    screen.precompile()
    measured = measure_necessity(runs, fight, episodes, seed, start, screen.display)
    screen.show(measured.to_dict(), *measured.to_rich())
    if out is not None:
        measured.save(out)
        screen.console.print(f"results in {out}")


def retention(agents: Sequence[Path], episodes: int, seed: int, out: Path | None) -> None:
    """Evaluate every scenario of runs with the versions after each adaptation: transfer and forgetting."""
    from soulsgraph.transfer.retention import chain_rates_over_seeds, measure_retention, measures_over_seeds

    runs, found = _open(agents, None, out), {}
    check_chains({training_seed: lineage.domain_chain(run) for training_seed, run in runs.items()})
    screen.precompile()
    for training_seed, run in runs.items():
        with run.locked():
            found[training_seed] = single = measure_retention(run, episodes, seed, screen.display)
        if len(runs) > 1:
            screen.console.print(f"seed {training_seed}")
        screen.console.print(single.to_rich())
        screen.console.print("\n".join(single.lines()))
    tables = {"retention": chain_rates_over_seeds(found), "retention-measures": measures_over_seeds(found)}
    _show(out, tables, (single.to_dict(), []) if len(runs) == 1 else None)


def _open(agents: Sequence[Path], copies: Path | None, out: Path | None) -> dict[int, RunFolder]:
    """Open the runs by seed to write into them; check that the folder of the results over all seeds can be written.

    Agents of the zoo among them are copied to folders below `copies` first.
    """
    if copies is not None and not any(map(is_agent, agents)):
        raise SoulsGraphError("run: expected none, for no agent of the zoo is named; leave it out.")
    copied = [copies / agent if copies and is_agent(agent) else None for agent in agents]
    runs = open_seeds([options.own_run(agent, copy) for agent, copy in zip(agents, copied, strict=True)])
    if out is not None:
        check_writable(out)
    return runs


def _show(
    out: Path | None, tables: Mapping[str, SeedsTable], alone: tuple[Any, Sequence[RenderableType]] | None
) -> None:
    """Print the tables over all seeds, and write them if a folder was named.

    `alone` is what is printed in their place where there is a single seed: plain values, and parts for people.
    """
    if alone is None:
        together = {name: table.to_dict() for name, table in tables.items()}
        alone = together, [part for table in tables.values() for part in table.to_rich()]
    plain, parts = alone
    screen.show(plain, *parts)
    if out is not None:
        for name, table in tables.items():
            table.save(out, name)
        screen.console.print(f"all seeds together in {out}")


def _show_selections(runs: Mapping[int, RunFolder], asked: TransferOptions) -> None:
    """Select skills of each run by few decisions, and show which and why."""
    from soulsgraph.continual.selecting import select_for_run

    screen.precompile()
    found = {seed: select_for_run(run, asked.home or run.plan.scenario, asked.scenario) for seed, run in runs.items()}
    headings = {seed: [f"seed {seed}"] if len(found) > 1 else [] for seed in found}
    shown = [line for seed, selection in found.items() for line in headings[seed] + selection.lines(_EVERY)]
    screen.show({str(seed): selection.to_dict() for seed, selection in found.items()}, "\n".join(shown))


def _measured(run: RunFolder, question: Question) -> TransferReport:
    from soulsgraph.transfer import report as reports

    screen.precompile()
    with run.locked():
        report = reports.transfer(run, question, screen.display)
        reports.save_transfer(run, report)
    return report


def _arms(run: RunFolder, home: str, scenario: str, jointly: str | None) -> tuple[Arm, ...]:
    """Return the arms of a recovery, or where skills are named those that adapt them jointly and one after another."""
    from soulsgraph.transfer.recovery import arms_of, joint_arms

    if jointly is None:
        return arms_of(run, *_recommended_skills(run, home, scenario))
    if (named := _named_skills(run, jointly)) is not None:
        return joint_arms(named)
    found = _found_skills(run, home, scenario, jointly)
    return joint_arms(*found) if found.skills else ()


def _recommended_skills(run: RunFolder, home: str, scenario: str) -> Recommendation:
    """Return the recommendation saved for the versions in play; measure first if there is none."""
    from soulsgraph.transfer.report import saved_recommendation

    question = Question(scenario, home=home)
    return saved_recommendation(run, question) or _measured(run, question).recommendation
