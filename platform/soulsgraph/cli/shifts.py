"""Skills adapted to another fight."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from soulsgraph.cli import options
from soulsgraph.cli.output import screen
from soulsgraph.paper.study import ADAPTED, SHIFTED
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import check_learns, lasting_name
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.games.link import load_games


def adapt(
    agent: Path,
    /,
    *,
    scenario: str = SHIFTED,
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
        skills: Skills to adapt, separated by commas; auto: those for which the new fight is another one, by at most
            8,000 decisions in it; or all.
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

    # Refused before anything is copied.
    options.changed_run(open_run(agent), overrides)
    folder = options.changed_run(RunFolder.open(options.own_run(agent, run)), overrides)
    scenario, after = lasting_name(scenario), after and lasting_name(after)
    lineage.check_budget(budget)
    source = lineage.check_target(folder, scenario, after)
    chosen, cost = lineage.named_skills(folder, skills), dict[str, Any]()
    found = chosen is None
    if chosen is None:
        from soulsgraph.continual.selecting import select_and_show
        from soulsgraph_clusters.sessions.session import check_session

        # Refused before fights are played to select skills.
        check_session(session.address)
        if session.games is not None:
            load_games(session.games)
        screen.precompile()
        selection = select_and_show(folder, source, scenario, screen.console, "adapt --skills all")
        chosen, cost["selection_decisions"] = selection.skills, selection.decisions
    cards = []
    if chosen or not found:
        stages = lineage.adaptation_stages(folder, scenario, chosen, budget, source, jointly)
        check_learns(folder.plan, lineage.unfinished(folder, stages))
        with options.workplace(folder, session) as place:
            cards = train_stages(place, stages, screen.console)
            show_fight(place, screen.console)
    note = folder.plan.budget_note if cards and budget is None else ""
    screen.show([card.to_dict() | cost for card in cards], *([note] if note else []))
