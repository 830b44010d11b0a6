"""The commands that exchange trained skills with other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, Flag, RunOptions
from soulsgraph_envs.core.errors import SoulsGraphError


def export(
    folder: Annotated[Positional[Path], arg(metavar="RUN|AGENT")],
    out: Annotated[Path, arg(metavar="DIR")],
    output: RunOptions = DEFAULT_RUN,
    onnx: Flag = False,
    scenario: Annotated[str | None, arg(metavar="SCENARIO")] = None,
    check: Annotated[int, arg(metavar="N")] = 500_000,
) -> None:
    """Write an agent's skills for other programs: as ONNX, a file for each with its normalisation inside.

    Before anything is written, every file's actions are compared with ours: on observations of the agent's own fights,
    and on observations drawn in the ranges of the columns.

    Args:
        folder: Run folder, or the name of an agent of the zoo.
        out: Folder for the files; earlier ones of the same names are replaced.
        onnx: Write ONNX files.
        scenario: Scenario whose HP window and skill versions are taken; the run's own if not given.
        check: Observations of each kind that every file is compared on.
    """
    if not onnx:
        raise SoulsGraphError("export: expected a format to write, found none; ask for one with --onnx.")
    # Imported here: a help text need not wait for it.
    from soulsgraph.evaluate import Setting, source_of
    from soulsgraph.export import CHECK, Agreement, export_onnx
    from soulsgraph.plan import lasting_name
    from soulsgraph.precompile import precompile_playing
    from soulsgraph.progress import stage_progress
    from soulsgraph.tables import text_table
    from soulsgraph.zoo import open_run
    from soulsgraph_policies.atomic import check_writable
    from soulsgraph_policies.onnx_network import import_onnx

    run = open_run(folder)
    import_onnx()
    check_writable(out)
    chosen = run.plan.scenario if scenario is None else lasting_name(scenario)
    setting = Setting(chosen, source_of(run, chosen))
    precompile_playing(output.console)
    checked: list[Agreement] = []
    with stage_progress("check", 2 * len(run.plan.skill_graph.order), output.display, unit="comparisons") as progress:

        def on_checked(found: Agreement) -> None:
            checked.append(found)
            progress.update(len(checked))

        export_onnx(run, out, setting, check, on_checked)
    rows = [
        (one.skill, one.source, f"{one.observations:,}", one.clear_differing, f"{one.near:,}", one.near_differing)
        for one in checked
    ]
    headings = ("skill", "observations", "number", "other action", "near ties", "of these, other action")
    output.show(
        {"out": str(out), "checked": [one.to_dict() for one in checked]},
        text_table("", headings, [tuple(map(str, row)) for row in rows]),
        f"written: {out}/*.onnx, and the comparison in {out / CHECK}",
    )


def import_sb3(
    file: Annotated[Positional[Path], arg(metavar="FILE.zip")],
    skill: Annotated[str, arg(metavar="SKILL")],
    run: Annotated[Path, arg(metavar="DIR")],
    plan: options.PlanOptions,
    output: RunOptions = DEFAULT_RUN,
    statistics: Annotated[Path | None, arg(metavar="FILE.json")] = None,
) -> None:
    """Import a DQN that stable-baselines3 saved as a version of a skill: its weights alone, nothing is unpickled.

    Args:
        file: File that DQN.save wrote, of an MlpPolicy with the skill's observation and actions.
        skill: Skill that it plays.
        run: Run folder whose library the version is added to; begun if it does not exist.
        statistics: JSON file with mean, variance and clip of its VecNormalize; raw observations if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.imported import import_stable_baselines
    from soulsgraph.plan import Plan
    from soulsgraph.run_folder import RunFolder
    from soulsgraph.zoo import is_agent
    from soulsgraph_envs.skills import END_TO_END

    if (run / RunFolder.plan_file).exists() or is_agent(run):
        folder = options.open_run(run, plan)
    else:
        graph = options.BASELINE_GRAPH if skill == END_TO_END else Plan.graph
        folder = RunFolder.planned(run, Plan(graph=graph, **options.plan_values(plan)))
    card = import_stable_baselines(folder, skill, file, statistics)
    trained = (
        f"trained for {card.training.steps:,} steps by stable-baselines3 {card.training.packages['stable-baselines3']}"
    )
    output.show(card.to_dict(), f"{file}: {skill} v{card.version} of {run}, {trained}")
