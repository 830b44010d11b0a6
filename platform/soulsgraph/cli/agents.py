"""Trained agents in and out: those that come with the package, clones of recorded fights, files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from soulsgraph.api import OPTIONS, Run, open_or_plan
from soulsgraph.cli.options import taken
from soulsgraph.cli.output import command_line, screen
from soulsgraph.results.tables import text_table
from soulsgraph.runs.evaluate import Setting, source_of
from soulsgraph.runs.lineage import named_skills
from soulsgraph.runs.plan import Plan, lasting_name
from soulsgraph.runs.progress import silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.zoo import AGENTS, agent_names, copy_agent, open_agent, open_run
from soulsgraph.zoo.card import HEADINGS, PAGE, AgentCard, agent_row, agents_table, read_card
from soulsgraph_envs.core.config import Keywords, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.skills import END_TO_END

#: Observations that ONNX files are compared on.
_CHECKED = 500_000
#: What a new run trains and how.
_Plan = Annotated[Any, Keywords((Plan,), ("learners", "overrides"), OPTIONS)]


def zoo(agent: str | None = None, /, *, run: Path | None = None, markdown: bool = False) -> Run | None:
    """List the trained agents that come with the package, show the card of one, or copy it into a run folder.

    Args:
        agent: Name of an agent to show, or a run folder of your own; a list with the win rates of all if not given.
        run: Run folder to copy the agent into, to adapt it or to train it further; a copy that is there stays.
        markdown: Print the list as Markdown.
    """
    if agent is None:
        if run is not None:
            raise SoulsGraphError("zoo: expected the agent to copy, found none; name one.")
        cards = [read_card(AGENTS / name) for name in agent_names()]
        if markdown and not screen.json:
            print(agents_table(cards))
            return None
        screen.show([_summary(card) for card in cards], text_table("", HEADINGS, map(agent_row, cards)))
        return None
    if run is not None:
        copy_agent(agent, run)
        go_on = command_line("adapt", run, "--scenario", "NAME")
        screen.show({"agent": agent, "run": str(run)}, f"{run} is a copy of {agent}; continue with: {go_on}")
        return None
    from rich.markdown import Markdown  # Imported here: it loads a highlighter of code.

    folder = open_run(Path(agent)) if Path(agent).is_dir() else open_agent(agent)
    if not (folder.path / PAGE).exists():
        return Run(folder)
    text = (folder.path / PAGE).read_text(encoding="utf-8")
    screen.show(to_table(read_card(folder.path)), Markdown(text.split("---\n", 2)[2]))
    return None


def _summary(card: AgentCard) -> dict[str, Any]:
    """Return what the list shows of an agent as plain values; rates are ratios."""
    said = {name: getattr(card, name) for name in ("name", "scenario", "preset", "graph", "seed", "budget")}
    return said | {name: getattr(card.reached, name) for name in ("wins", "episodes", "rate", "low", "high")}


def clone(fights: Path, /, *, run: Path, skills: str = "all", **plan: _Plan) -> None:
    """Clone skills from recorded fights of people, scripts or agents; training continues from the clones.

    The decisions of every skill are reconstructed from the fights' controls. Each clone becomes the next version of its
    skill, unless the present version is a clone of the same decisions; `train` continues from the newest one, with the
    fights' decisions in the replay. The graph of a new run is that of the fights, unless one is named.

    Args:
        fights: Folder with recorded fights of the run's scenario, or one file.
        run: Run folder, begun if it does not exist.
        skills: Skills to clone, separated by commas, or all.
    """
    check_extra("data clone", "train")
    # Imported here: it takes seconds.
    from soulsgraph.recordings.cloning import clone_fights, graph_of
    from soulsgraph_policies.learning.cloning import UPDATES

    if not (run / RunFolder.plan_file).exists():
        plan = {"graph": graph_of(fights), **plan}
    folder = open_or_plan(run, plan)
    if (chosen := named_skills(folder, skills)) is None:
        raise UnknownNameError("skill", skills, (*folder.plan.skill_graph.order, "all"))
    silence_advice()
    screen.precompile()
    with stage_progress("clone", len(chosen) * UPDATES, screen.console, unit="updates") as progress:
        found = clone_fights(folder, fights, chosen, lambda: progress.advance(1))
    rows = [one.row() for one in found]
    headings = ("skill", "version", "decisions", "ambiguous ticks", "agreement")
    formats = ("{}", "v{}", "{:,}", "{:,}", "{:.1%}")
    cells = [tuple(form.format(value) for form, value in zip(formats, row.values(), strict=True)) for row in rows]
    screen.show(
        rows,
        text_table("", headings, cells),
        *(f"{one.card.skill}: already cloned, v{one.card.version}" for one in found if one.earlier),
        f"play them with: {command_line('evaluate', run, *screen.repeated)}",
        f"learn on from them with: {command_line('train', '--run', run, *screen.repeated)}",
    )


def _onnx(source: Path, /, *, out: Path, scenario: str | None = None) -> None:
    """Export an agent's skills as ONNX files.

    Args:
        scenario: Scenario whose HP window and skill versions ONNX files have; the run's own if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.zoo.conversion import CHECK, Agreement, export_onnx

    run = open_run(source)
    check_extra("data export", "onnx")
    check_writable(out)
    chosen = run.plan.scenario if scenario is None else lasting_name(scenario)
    setting = Setting(chosen, source_of(run, chosen))
    screen.precompile()
    checked: list[Agreement] = []
    with stage_progress("check", len(run.plan.skill_graph.order), screen.console, unit="comparisons") as progress:

        def on_checked(found: Agreement) -> None:
            checked.append(found)
            progress.update(len(checked))

        export_onnx(run, out, setting, _CHECKED, on_checked)
    rows = [
        (one.skill, f"{one.observations:,}", one.clear_differing, f"{one.near:,}", one.near_differing)
        for one in checked
    ]
    headings = ("skill", "observations", "other action", "near ties", "of these, other action")
    screen.show(
        {"out": str(out), "checked": [one.to_dict() for one in checked]},
        text_table("", headings, [tuple(map(str, row)) for row in rows]),
        f"written: {out}/*.onnx, and the comparison in {out / CHECK}",
    )


def _rllib(fights: Path, /, *, out: Path, rllib: str) -> None:
    """Export the decisions of a skill with RLlib's columns.

    Args:
        rllib: Skill whose decisions are written with RLlib's columns, for its offline algorithms.
    """
    check_extra("data export", "data")
    from soulsgraph.recordings.export import export_rllib

    rows = export_rllib(fights, rllib, out)
    screen.show({"file": str(out), "skill": rllib, "decisions": rows}, f"{rows:,} decisions of {rllib} in {out}")


def _minari(fights: Path, /, *, out: Path, minari: str, name: str | None = None) -> None:
    """Export the decisions of a skill as a Minari dataset.

    Args:
        minari: Skill whose decisions are written as a Minari dataset.
        name: Name of the Minari dataset; the skill's with `-v0` behind it if not given.
    """
    check_extra("data export", "minari")
    from soulsgraph.recordings.export import export_minari

    dataset = name or f"{minari.replace('_', '-')}-v0"
    episodes = export_minari(fights, minari, out, dataset)
    plain = {"dataset": dataset, "folder": str(out), "skill": minari, "episodes": episodes}
    screen.show(plain, f"{episodes:,} episodes of {minari} as {dataset} in {out}")


def export(
    source: Path,
    /,
    *,
    out: Path,
    onnx: bool = False,
    **given: Annotated[Any, Keywords((_onnx, _rllib, _minari), ("out",))],
) -> None:
    """Export an agent's skills as ONNX files, or the decisions of a skill in recorded fights for other learners.

    Every ONNX file has the normalisation inside. Before anything is written, its actions are compared with ours on
    observations of the agent's own fights.

    Args:
        source: Run folder or name of an agent of the zoo; with `rllib` and `minari` a folder of recorded fights, or one
            file.
        out: Folder for ONNX files, of which earlier ones of the same names are replaced; with `rllib` the Parquet file
            to write, with `minari` the folder of datasets (MINARI_DATASETS_PATH).
        onnx: Write ONNX files.
    """
    named = ["onnx"] * onnx + [name for name in ("rllib", "minari") if name in given]
    if len(named) != 1:
        raise SoulsGraphError("data export: expected one of `onnx`, `rllib` and `minari`; name one.")
    function: Any = {"onnx": _onnx, "rllib": _rllib, "minari": _minari}[named[0]]
    taken(f"data export --{named[0]}", function, given)(source, out=out)


def import_sb3(file: Path, /, *, skill: str, run: Path, statistics: Path | None = None, **plan: _Plan) -> None:
    """Import a DQN saved by stable-baselines3 as a version of a skill: only its weights, nothing is unpickled.

    Args:
        file: File that DQN.save wrote, of an MlpPolicy with the skill's observation and actions.
        skill: Skill that it plays.
        run: Run folder whose library the version is added to; begun if it does not exist.
        statistics: JSON file with mean, variance and clip of its VecNormalize; raw observations if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.zoo.conversion import import_stable_baselines

    if skill == END_TO_END and not (run / RunFolder.plan_file).exists():
        plan = {"graph": "end-to-end", **plan}
    folder = open_or_plan(run, plan)
    card = import_stable_baselines(folder, skill, file, statistics)
    trained = (
        f"trained for {card.training.steps:,} steps by stable-baselines3 {card.training.packages['stable-baselines3']}"
    )
    screen.show(card.to_dict(), f"{file}: {skill} v{card.version} of {run}, {trained}")


def calibrate(folder: Path, /, *, boss: str, out: Path, scenario: str | None = None, simulated: bool = False) -> None:
    """Fit a boss's data to recorded fights: values with intervals and verdicts, and a scenario to train in.

    Values that the fights do not determine stay as shipped, and are listed in the file. Nothing is overwritten.

    Args:
        folder: Folder with recorded fights of one scenario, or one file.
        boss: Boss whose data are fitted, by name or as a TOML file; moves that they lack are added.
        out: TOML file of the fitted boss. Its scenario is written beside it, with `-scenario` after the name, and the
            player, if it differs from the shipped one, with `-player`.
        scenario: Scenario in which the fitted boss is fought; the recorded one if not given.
        simulated: Accept fights of the simulator itself, to test the fit on known values.
    """
    check_extra("data calibrate", "data")
    # Imported here: a help text need not wait for it.
    from soulsgraph.calibrate.boss_file import check_free, write_fitted
    from soulsgraph.calibrate.calibration import calibrate as fit_boss
    from soulsgraph.calibrate.prediction import DRAWS, predict, prediction_lines
    from soulsgraph.calibrate.rows import read_fights
    from soulsgraph.calibrate.values import VALUE_HEADINGS, value_cells

    check_free(out)
    check_writable(out.parent)
    shipped = load_boss(boss)
    fought = read_fights(folder, shipped, simulated)
    name = scenario or fought.scenario
    found = fit_boss(fought, shipped, load_player(load_scenario(name).player))
    paths = write_fitted(out, found, boss, name, shipped)
    screen.precompile()
    with stage_progress("predict", DRAWS + 1, screen.console, unit="fights") as progress:
        rates = predict(found, folder, boss, name, shipped, lambda: progress.advance(1))
    first = [*prediction_lines(found, rates, folder), *found.notices]
    table = text_table("", VALUE_HEADINGS, [value_cells(value) for value in (*found.boss, *found.player)])
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.counts.items())
    lines = [f"{counts}: {found.fights} fights, {found.seconds / 60.0:.0f} min", f"written: {paths[0]}, {paths[1]}"]
    plain = found.to_dict() | {"files": list(map(str, paths)), "win_rates": [vars(one) for one in rates]}
    screen.show(plain, *first, table, *lines)
