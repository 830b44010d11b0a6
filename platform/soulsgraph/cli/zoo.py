"""Trained agents in and out: those that come with the package, and files of other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_OUTPUT, DEFAULT_RUN, Flag, OutputOptions, RunOptions, command_line, one_action
from soulsgraph.results.tables import text_table
from soulsgraph.runs.evaluate import Setting, source_of
from soulsgraph.runs.lineage import cards_of
from soulsgraph.runs.plan import check_range, lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import AGENTS, agent_names, copy_agent, is_agent, open_agent, open_run
from soulsgraph.zoo.card import (
    EPISODES,
    HEADINGS,
    PAGE,
    VERIFIED_HEADINGS,
    AgentCard,
    agent_row,
    agents_table,
    read_card,
    verify_agent,
)
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable, slug
from soulsgraph_envs.skills import END_TO_END

Names = Annotated[Positional[tuple[str, ...]], arg(metavar="[NAME ...]")]
Name = Annotated[Positional[str], arg(metavar="NAME")]


def list_agents(output: OutputOptions = DEFAULT_OUTPUT, markdown: bool = False) -> None:
    """List the agents with the win rates of their cards.

    Args:
        markdown: Print the table as Markdown.
    """
    cards = [read_card(AGENTS / name) for name in agent_names()]
    if markdown and not output.json:
        print(agents_table(cards))
        return
    output.show([_summary(card) for card in cards], text_table("", HEADINGS, map(agent_row, cards)))


def show(name: Name, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Show an agent's card, or what a run folder of your own has.

    Args:
        name: Name of an agent, or a run folder.
    """
    from rich.markdown import Markdown  # Imported here: it loads a highlighter of code.

    run = open_run(Path(name)) if Path(name).is_dir() else open_agent(name)
    if not (run.path / PAGE).exists():
        _show_own(run, output)
        return
    text = (run.path / PAGE).read_text(encoding="utf-8")
    output.show(to_table(read_card(run.path)), Markdown(text.split("---\n", 2)[2]))


def _show_own(run: RunFolder, output: OutputOptions) -> None:
    """Show every version of a run's skills: where it was trained, for how long, on top of what."""
    plan, rows, cells = run.plan, [], []
    for card in cards_of(run):
        training, upstream = card.training, {one.skill: one.version for one in card.upstream}
        version = {"skill": card.skill, "version": card.version, "trained_on": training.scenario}
        learned = {"decisions": training.budget, "cloned": training.cloned}
        rows.append(version | learned | {"upstream": upstream, "digest": card.digest})
        above = ", ".join(f"{skill} v{number}" for skill, number in upstream.items())
        cells.append((card.skill, f"v{card.version}", slug(training.scenario), f"{training.budget:,}", above))
    title = f"{run.path}: {plan.graph}, {slug(plan.scenario)}, preset {plan.preset}, seed {plan.seed}"
    headings = ("skill", "version", "trained on", "decisions", "upstream")
    plain = {"run": str(run.path), "graph": plan.graph, "scenario": plan.scenario, "preset": plan.preset}
    output.show(plain | {"seed": plan.seed, "skills": rows}, text_table(title, headings, cells))


def copy(name: Name, run: Path, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Copy an agent into a run folder of your own, to adapt it or to train it further.

    Args:
        name: Name of an agent.
        run: Run folder to begin.
    """
    copied = copy_agent(name, run)
    go_on = command_line("adapt", run, "--scenario", "NAME")
    output.show({"agent": name, "run": str(copied.path)}, f"{name} copied to {run}; continue with: {go_on}")


def verify(names: Names = (), output: OutputOptions = DEFAULT_OUTPUT, episodes: int | None = None) -> None:
    """Play the episodes of agents' cards again and compare the win rates; exit 1 if an agent fails.

    A win rate must be within 1 point of the card's on the kind of processor that the card comes from, elsewhere inside
    the card's interval.

    Args:
        names: Agents to verify; all if none is named.
        episodes: Play only this many first episodes of each card.
    """
    if episodes is not None:
        check_range("episodes", episodes, 1, EPISODES)
    chosen, found = names or agent_names(), []
    for name in chosen:
        open_agent(name)  # A name that is none is refused before any plays.
    output.precompile()
    with stage_progress("verify", len(chosen), output.display, unit="agents") as progress:
        for number, name in enumerate(chosen, 1):
            found.append(verify_agent(name, episodes))
            progress.update(number)
    passed = all(one.holds and not one.changed for one in found)
    table = text_table("", VERIFIED_HEADINGS, [one.cells for one in found])
    output.show([one.to_dict() for one in found], table, passed=passed)


def _summary(card: AgentCard) -> dict[str, Any]:
    """Return what the list shows of an agent as plain values; rates are ratios."""
    said = {name: getattr(card, name) for name in ("name", "scenario", "preset", "graph", "seed", "budget")}
    return said | {name: getattr(card.reached, name) for name in ("wins", "episodes", "rate", "low", "high")}


#: The actions, in the order of the help.
ACTIONS: dict[str, Callable[..., None]] = {"list": list_agents, "show": show, "copy": copy, "verify": verify}
_Action: Any = one_action("zoo", ACTIONS)


def zoo(action: _Action) -> None:
    """Use the trained agents that come with the package: list them, see their cards, copy and verify them.

    Args:
        action: What to do.
    """


def export(
    folder: Positional[Path],
    out: Path,
    output: RunOptions = DEFAULT_RUN,
    onnx: Flag = False,
    scenario: str | None = None,
    check: int = 500_000,
) -> None:
    """Export an agent's skills for other programs: an ONNX file for each, with its normalisation inside.

    Before anything is written, every file's actions are compared with ours on observations of the agent's own fights.

    Args:
        folder: Run folder, or the name of an agent of the zoo.
        out: Folder for the files; earlier ones of the same names are replaced.
        onnx: Write ONNX files.
        scenario: Scenario whose HP window and skill versions are taken; the run's own if not given.
        check: Observations that every file is compared on.
    """
    if not onnx:
        raise SoulsGraphError("export: expected a format to write, found none; ask for one with --onnx.")
    # Imported here: a help text need not wait for it.
    from soulsgraph.zoo.conversion import CHECK, Agreement, export_onnx
    from soulsgraph_policies.agents.foreign_files import import_onnx

    run = open_run(folder)
    import_onnx()
    check_writable(out)
    chosen = run.plan.scenario if scenario is None else lasting_name(scenario)
    setting = Setting(chosen, source_of(run, chosen))
    output.precompile()
    checked: list[Agreement] = []
    with stage_progress("check", len(run.plan.skill_graph.order), output.display, unit="comparisons") as progress:

        def on_checked(found: Agreement) -> None:
            checked.append(found)
            progress.update(len(checked))

        export_onnx(run, out, setting, check, on_checked)
    rows = [
        (one.skill, f"{one.observations:,}", one.clear_differing, f"{one.near:,}", one.near_differing)
        for one in checked
    ]
    headings = ("skill", "observations", "other action", "near ties", "of these, other action")
    output.show(
        {"out": str(out), "checked": [one.to_dict() for one in checked]},
        text_table("", headings, [tuple(map(str, row)) for row in rows]),
        f"written: {out}/*.onnx, and the comparison in {out / CHECK}",
    )


def import_sb3(
    file: Annotated[Positional[Path], arg(metavar="FILE.zip")],
    skill: str,
    run: Path,
    plan: options.PlanOptions,
    output: RunOptions = DEFAULT_RUN,
    statistics: Annotated[Path | None, arg(metavar="FILE.json")] = None,
) -> None:
    """Import a DQN saved by stable-baselines3 as a version of a skill: only its weights, nothing is unpickled.

    Args:
        file: File that DQN.save wrote, of an MlpPolicy with the skill's observation and actions.
        skill: Skill that it plays.
        run: Run folder whose library the version is added to; begun if it does not exist.
        statistics: JSON file with mean, variance and clip of its VecNormalize; raw observations if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.zoo.conversion import import_stable_baselines

    graph = options.BASELINE_GRAPH if skill == END_TO_END and not options.is_begun(run) else None
    folder = options.open_run(run, plan) if is_agent(run) else options.open_or_plan(run, plan, graph)
    card = import_stable_baselines(folder, skill, file, statistics)
    trained = (
        f"trained for {card.training.steps:,} steps by stable-baselines3 {card.training.packages['stable-baselines3']}"
    )
    output.show(card.to_dict(), f"{file}: {skill} v{card.version} of {run}, {trained}")
