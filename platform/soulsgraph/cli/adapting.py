"""The commands of selective adaptation, each a thin function over the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from soulsgraph.advice import silence_advice
from soulsgraph.cli.options import (
    DEFAULT_JUDGING,
    DEFAULT_OUTPUT,
    DEFAULT_SESSION,
    DEFAULT_TRANSFER,
    JudgingOptions,
    OutputOptions,
    SessionOptions,
    TransferOptions,
)
from soulsgraph.cli.place import display_of, make_console, print_json, workplace
from soulsgraph.plan import lasting_name
from soulsgraph.run_folder import RunFolder

if TYPE_CHECKING:
    from soulsgraph_policies.artifact import SkillCard


def adapt(
    folder: Annotated[Positional[Path], "RUN"],
    session: SessionOptions = DEFAULT_SESSION,
    scenario: str = "iudex-phase2",
    skills: str = "dodge,heal_attack",
    budget: int | None = None,
    after: str | None = None,
) -> None:
    """Fine-tune chosen skills in another scenario, everything else frozen; earlier versions stay.

    Args:
        folder: Run folder with trained skills.
        scenario: Scenario to adapt to: a name or a TOML file.
        skills: Skills to adapt, separated by commas; auto: those that transfer recommends; all.
        budget: Steps for each skill; 40,000 times the run's scale if not given.
        after: Scenario whose versions are continued; the last one the run was adapted to if not given.
    """
    from soulsgraph.adaptation import adaptation_stages, check_budget, check_target, named_skills
    from soulsgraph.curriculum import train_stages
    from soulsgraph.domains import record_domain

    run, console = RunFolder.open(folder), make_console(session)
    scenario, after = lasting_name(scenario), after and lasting_name(after)
    check_budget(budget)
    source = check_target(run, scenario, after)
    chosen = named_skills(run, skills)
    if chosen is None:
        chosen = _recommended(run, source, scenario, session)
        console.print(f"recommended: {', '.join(chosen) or 'no skill, nothing to do'}", highlight=False)
    cards: list[SkillCard] = []
    if chosen or skills != "auto":
        stages = adaptation_stages(run, scenario, chosen, budget, source)
        with workplace(run, session) as place:
            record_domain(run, scenario, source)
            cards = train_stages(place, stages, console)
    if session.json:
        print_json([card.to_dict() for card in cards])


def transfer(
    folder: Annotated[Positional[Path], "RUN"],
    output: OutputOptions = DEFAULT_OUTPUT,
    judging: TransferOptions = DEFAULT_TRANSFER,
    controls: bool = False,
) -> None:
    """Measure, without training, what a shift does to each skill, and recommend which to adapt.

    Args:
        folder: Run folder with trained skills.
        controls: Hold the recommendation against shifts whose cause is known instead.
    """
    from soulsgraph.transfer.controls import control_rows, controls_table, run_controls
    from soulsgraph.transfer.measures import Question
    from soulsgraph.transfer.report import save_transfer
    from soulsgraph.transfer.report import transfer as measured

    run, console = RunFolder.open(folder), make_console(output)
    home = lasting_name(judging.home or run.plan.scenario)
    question = Question(home, lasting_name(judging.scenario), judging.episodes, judging.seed)
    with run.locked():
        if controls:
            results = run_controls(run, question, display=display_of(output))
            console.print(controls_table(results))
            plain: Any = control_rows(results)
        else:
            report = measured(run, question, display_of(output))
            save_transfer(run, report)
            for table in report.to_rich():
                console.print(table)
            console.print("\n".join(report.lines()), highlight=False, soft_wrap=True)
            plain = report.to_dict()
    console.print(f"results in {run.path / 'results'}", highlight=False, soft_wrap=True)
    if output.json:
        print_json(plain)


def recovery(
    folder: Annotated[Positional[Path], "RUN"],
    session: SessionOptions = DEFAULT_SESSION,
    judging: TransferOptions = DEFAULT_TRANSFER,
    budget: int = 80_000,
) -> None:
    """Compare what the same steps win back: the recommended skills, each alone, all, all from scratch.

    Args:
        folder: Run folder with trained skills; it stays as it is, each arm gets a folder below it.
        budget: Steps of each arm in all.
    """
    from soulsgraph.adaptation import check_target
    from soulsgraph.transfer.recovery import Comparison, Target, arms_of, recover, recovery_table
    from soulsgraph_clusters.session import connect

    run, console = RunFolder.open(folder), make_console(session)
    home = judging.home and lasting_name(judging.home)
    target = Target(lasting_name(judging.scenario), budget, judging.episodes, judging.seed, home)
    source = check_target(run, target.scenario, target.after)
    arms = arms_of(run, _recommended(run, source, target.scenario, session))
    silence_advice()
    with run.locked(), connect(session.address) as joined:
        results = recover(Comparison(run, target, joined, display_of(session)), arms, console)
    console.print(recovery_table(target, results))
    if session.json:
        print_json([result.to_dict() for result in results])


def retention(
    folder: Annotated[Positional[Path], "RUN"],
    output: OutputOptions = DEFAULT_OUTPUT,
    judging: JudgingOptions = DEFAULT_JUDGING,
) -> None:
    """Judge every scenario a run went through with the versions after each: transfer and forgetting.

    Args:
        folder: Run folder that was adapted to one scenario or more.
    """
    from soulsgraph.transfer.retention import judge_retention

    run, console = RunFolder.open(folder), make_console(output)
    with run.locked():
        judged = judge_retention(run, judging.episodes, judging.seed, display_of(output))
    console.print(judged.to_rich())
    console.print("\n".join(judged.lines()), highlight=False, soft_wrap=True)
    if output.json:
        print_json(judged.to_dict())


def _recommended(run: RunFolder, home: str, scenario: str, output: OutputOptions) -> tuple[str, ...]:
    """Give what a saved transfer recommends; measure first where there is none of the versions in play."""
    from soulsgraph.transfer.measures import Question
    from soulsgraph.transfer.report import save_transfer, saved_recommendation, transfer

    saved = saved_recommendation(run, home, scenario)
    if saved is not None:
        return saved
    with run.locked():
        report = transfer(run, Question(home, scenario), display_of(output))
        save_transfer(run, report)
    return report.recommended
