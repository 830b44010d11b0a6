"""`soulsgraph clone`: skills that do as recorded fights show, to learn on from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, RunOptions
from soulsgraph.cli.remedies import command_line
from soulsgraph_envs.core.errors import UnknownNameError


def clone(
    fights: Annotated[Positional[Path], arg(metavar="FIGHTS")],
    run: Annotated[Path, arg(metavar="DIR")],
    plan: options.PlanOptions,
    output: RunOptions = DEFAULT_RUN,
    skills: Annotated[str, arg(metavar="SKILL,...")] = "all",
    graph: options.Graph = None,
) -> None:
    """Clone skills from recorded fights, of people or of anybody else; training goes on from the clones.

    What every skill would have decided is read back from the fights' controls. Each clone becomes the next version of
    its skill; `train` and `curriculum --resume` go on from the newest one, with the fights' decisions in the replay.

    Args:
        fights: Folder with recorded fights of the run's scenario, or one file.
        run: Run folder, begun if it does not exist.
        skills: Skills to clone, separated by commas, or all.
        graph: Skill graph of a new run: paper (the default), or a project's, as PROJECT/GRAPH.
    """
    # Imported here: it takes seconds.
    from soulsgraph.domains import named_skills
    from soulsgraph.plan import Plan
    from soulsgraph.precompile import precompile_playing
    from soulsgraph.progress import silence_advice, stage_progress
    from soulsgraph.recordings.cloning import clone_fights
    from soulsgraph.run_folder import RunFolder
    from soulsgraph.tables import text_table

    begun = (run / RunFolder.plan_file).exists()
    given = plan if graph is None else {**plan, "graph": graph}
    folder = options.open_run(run, given) if begun else RunFolder.planned(run, Plan(**options.plan_values(given)))
    if (chosen := named_skills(folder, skills)) is None:
        raise UnknownNameError("skill", skills, (*folder.plan.skill_graph.order, "all"))
    silence_advice()
    precompile_playing(output.console)
    with stage_progress("clone", len(chosen), output.display, unit="skills") as progress:
        found = clone_fights(folder, fights, chosen, lambda _: progress.advance(1))
    rows = [one.row() for one in found]
    headings = ("skill", "version", "decisions", "ambiguous ticks", "chosen alike")
    formats = ("{}", "v{}", "{:,}", "{:,}", "{:.1%}")
    cells = [tuple(form.format(value) for form, value in zip(formats, row.values(), strict=True)) for row in rows]
    output.show(
        rows,
        text_table("", headings, cells),
        f"play them with: {command_line('evaluate', run, *output.repeated)}",
        f"learn on from them with: {command_line('curriculum', '--resume', '--run', run, *output.repeated)}",
    )
